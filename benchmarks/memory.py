"""The peak of a training step's memory, weights and optimizer included, each time in a new process."""

from functools import partial

from benchmarks.subjects import Case, Contestant, Settings
from keras_vit.evaluation.device.machine import name_accelerator, peak_memory
from keras_vit.evaluation.device.process import run_apart

STEPS = 2  # the first one compiles


def measure_keras(case, remat):
    """Bytes that two steps of our model take beyond what the framework does."""
    from benchmarks import keras_models
    from benchmarks.models import random_data

    config = keras_models.configure(case)
    name_accelerator()  # starts the framework
    before = peak_memory()
    model = keras_models.build_keras_vit(config, remat)
    step = keras_models.train(model, *random_data(case.batch, config))
    for _ in range(STEPS):
        step()
    return float(peak_of_device(case.backend) or max(peak_memory() - before, 1))


def peak_of_device(backend):
    """The most bytes that were taken of a GPU's memory; 0 where there is none."""
    if not name_accelerator():
        return 0
    if backend == "jax":
        import jax

        return jax.devices()[0].memory_stats()["peak_bytes_in_use"]
    import tensorflow as tf

    return tf.config.experimental.get_memory_info("GPU:0")["peak"]


def measure_timm(case, device, checkpointing):
    """The same of timm's model."""
    from benchmarks import keras_models, torch_models
    from benchmarks.models import random_data

    config = keras_models.configure(case)
    import timm  # noqa: F401, which takes memory of its own
    import torch

    before = peak_memory()
    place = torch_models.Place(device, case.precision, checkpointing=checkpointing)
    step = torch_models.train(case.model, case.image_size, random_data(case.batch, config), place)
    for _ in range(STEPS):
        step()
    return float(torch.cuda.max_memory_allocated() if device == "cuda" else max(peak_memory() - before, 1))


def enter_memory(case: Case, settings: Settings):
    """Our step and timm's, each with and without inner values computed again."""
    from benchmarks.torch_models import NAMES

    device = "cuda" if name_accelerator() else "cpu"
    measures = {
        "keras_vit": (("timm",), measure_keras, case, False),
        "keras_vit, remat": (("keras_vit", "timm, checkpointing"), measure_keras, case, True),
    }
    if "timm" in settings.peers and case.model in NAMES:
        measures["timm"] = (), measure_timm, case, device, False
        measures["timm, checkpointing"] = (), measure_timm, case, device, True

    def enter(over, *call):
        return Contestant(partial(run_apart, *call, limit=settings.limit), over=over, unit="bytes")

    return {name: partial(enter, *row) for name, row in measures.items()}
