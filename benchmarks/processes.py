"""Keras' engines beside each other, and the memory of training steps: each turn in a new process, beside timm.

A process has one engine of Keras, and a peak of memory that never falls.
"""

import dataclasses
import os
import time
from functools import partial

from benchmarks.subjects import Case, Contestant, Settings
from benchmarks.torch_models import NAMES
from keras_vit.evaluation.device.measuring import name_accelerator, peak_memory, seconds_per_call
from keras_vit.evaluation.device.process import run_apart

ENGINES = ("tensorflow", "jax")
TURN = 2.0  # seconds that the calls of a turn fill


def measures_memory(case):
    return "memory" in (case.subject, case.kind)


def measure(case, build, peak_of_device):
    """Seconds of a call once it is compiled, or until the first one is done; bytes beyond the framework's of two.

    `build` makes the model and its images, and returns what makes the call.
    """
    before = peak_memory()
    make_call = build()
    start = time.perf_counter()
    call = make_call()
    call()
    if case.kind == "first step":
        return time.perf_counter() - start
    if not measures_memory(case):
        return seconds_per_call(call, TURN)
    call()
    return float(peak_of_device() or max(peak_memory() - before, 1))


def peak_of_gpu(backend):
    """The most bytes that were taken of a GPU's memory; 0 where there is none."""
    if not name_accelerator():
        return 0
    if backend == "jax":
        import jax

        return jax.devices()[0].memory_stats()["peak_bytes_in_use"]
    import tensorflow as tf

    return tf.config.experimental.get_memory_info("GPU:0")["peak"]


def measure_keras(case: Case, remat: bool = False) -> float:
    """Seconds or bytes of our model on the case's engine."""
    os.environ["KERAS_BACKEND"] = case.backend  # before Keras is imported
    from benchmarks import keras_models
    from benchmarks.models import random_data

    config = keras_models.configure(case)
    name_accelerator()  # starts the framework

    def build():
        model, (images, labels) = keras_models.build_keras_vit(config, remat), random_data(case.batch, config)
        if case.kind == "inference":
            return partial(keras_models.infer, model, images)
        return partial(keras_models.train, model, images, labels)

    return measure(case, build, partial(peak_of_gpu, case.backend))


def measure_timm(case: Case, device: str = "cpu", checkpointing: bool = False) -> float:
    """The same of timm's model."""
    import timm  # noqa: F401, whose import is no part of the first step and takes memory of its own
    import torch

    from benchmarks import keras_models, torch_models
    from benchmarks.models import random_data

    config = keras_models.configure(case)
    place = torch_models.Place(device, case.precision, checkpointing=checkpointing)

    def build():
        images, labels = random_data(case.batch, config)
        if case.kind == "inference":
            return partial(torch_models.infer, case.model, case.image_size, (images,), place)
        return partial(torch_models.train, case.model, case.image_size, (images, labels), place)

    return measure(case, build, lambda: torch.cuda.max_memory_allocated() if device == "cuda" else 0)


def enter(calls, case, settings):
    """{name: function that makes the contestant}, of {name: (those it is compared with, function, its arguments)}."""
    unit = "bytes" if measures_memory(case) else "s"

    def make(over, *call):
        return Contestant(partial(run_apart, *call, limit=settings.limit), over=over, unit=unit)

    return {name: partial(make, *row) for name, row in calls.items()}


def enter_memory(case: Case, settings: Settings):
    """Our step and timm's, each with and without inner values computed again."""
    device = "cuda" if name_accelerator() else "cpu"
    calls = {
        "keras_vit": (("timm",), measure_keras, case),
        "keras_vit, remat": (("keras_vit", "timm, checkpointing"), measure_keras, case, True),
    }
    if "timm" in settings.peers and case.model in NAMES:
        calls["timm"] = (), measure_timm, case, device
        calls["timm, checkpointing"] = (), measure_timm, case, device, True
    return enter(calls, case, settings)


def enter_engines(case: Case, settings: Settings):
    """Our model on each engine, and timm's."""
    rivals = ("timm",) if "timm" in settings.peers and case.model in NAMES else ()
    calls = {name: (rivals, measure_keras, dataclasses.replace(case, backend=name)) for name in ENGINES}
    calls["jax"] = (("tensorflow", *rivals), *calls["jax"][1:])
    calls |= {name: ((), measure_timm, case) for name in rivals}
    return enter(calls, case, settings)
