"""Keras' engines beside each other, and timm: each turn in a new process, since a process has one engine of Keras."""

import dataclasses
import os
import time
from functools import partial

from benchmarks.memory import measure_keras, measure_timm
from benchmarks.subjects import Case, Contestant, Settings
from benchmarks.torch_models import NAMES
from keras_vit.evaluation.device.process import run_apart
from keras_vit.evaluation.device.timing import seconds_per_call

ENGINES = ("tensorflow", "jax")
TURN = 2.0  # seconds that the calls of a turn fill


def time_calls(make_call, kind):
    """Seconds of a call once it is compiled, or until the first one is done."""
    start = time.perf_counter()
    call = make_call()
    call()
    return time.perf_counter() - start if kind == "first step" else seconds_per_call(call, TURN)


def measure_engine(case: Case) -> float:
    """Seconds or bytes of our model on the case's engine."""
    os.environ["KERAS_BACKEND"] = case.backend  # before Keras is imported
    if case.kind == "memory":
        return measure_keras(case, remat=False)
    from benchmarks import keras_models
    from benchmarks.models import random_data

    config = keras_models.configure(case)
    model, (images, labels) = keras_models.build_keras_vit(config), random_data(case.batch, config)
    if case.kind == "inference":
        return time_calls(lambda: keras_models.infer(model, images), case.kind)
    return time_calls(lambda: keras_models.train(model, images, labels), case.kind)


def measure_peer(case: Case) -> float:
    """The same of timm's model."""
    if case.kind == "memory":
        return measure_timm(case, "cpu", checkpointing=False)
    import timm  # noqa: F401, whose import is no part of the first step

    from benchmarks import keras_models, torch_models
    from benchmarks.models import random_data

    images, labels = random_data(case.batch, keras_models.configure(case))
    place = torch_models.Place("cpu", case.precision)
    what = case.model, case.image_size
    if case.kind == "inference":
        return time_calls(lambda: torch_models.infer(*what, (images,), place), case.kind)
    return time_calls(lambda: torch_models.train(*what, (images, labels), place), case.kind)


def enter_engines(case: Case, settings: Settings):
    """Our model on each engine, and timm's."""
    unit = "bytes" if case.kind == "memory" else "s"
    rivals = {name: () for name in ("timm",) if name in settings.peers and case.model in NAMES}
    calls = {name: partial(run_apart, measure_engine, dataclasses.replace(case, backend=name)) for name in ENGINES}
    calls |= {name: partial(run_apart, measure_peer, case) for name in rivals}

    def enter(name, over):
        return Contestant(partial(calls[name], limit=settings.limit), over=over, unit=unit)

    over = {"tensorflow": tuple(rivals), "jax": ("tensorflow", *rivals), **rivals}
    return {name: partial(enter, name, over[name]) for name in calls}
