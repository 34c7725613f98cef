"""Inference, training steps and growth: our models beside the peers' and the machine's ceilings."""

import dataclasses
from functools import partial

import numpy as np

from benchmarks import keras_models, torch_models
from benchmarks.ceilings import CEILINGS
from benchmarks.subjects import Case, Settings
from benchmarks.timing import Contestant, seconds_per_call
from keras_vit.models.cost import count_flops

GROWING_SIZES = (224, 384, 512, 768, 1024)
GROWING_BATCHES = (1, 2, 4, 8, 16, 32)
TRAINING_PASSES = 3  # the gradient takes twice the forward pass


def random_data(batch, config):
    """Images (n, h, w, 3) in [-1, 1] and labels (n,)."""
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (batch, *config.image_size, config.num_channels)).astype("float32")
    return images, rng.integers(0, max(config.num_classes, 1), batch)


def enter_models(case: Case, settings: Settings, keras_call, torch_call, passes, inputs):
    """The makers of a model's contestants: ours, the peers that have it, the ceilings.

    Args:
        keras_call, torch_call: from a model, the data and more to a function of no argument.
        passes: of the network that a call makes.
        inputs: how many of images and labels the calls take.
    """
    config = keras_models.configure(case)
    work = passes * count_flops(config) * case.batch
    data = random_data(case.batch, config)[:inputs]

    def enter(make_call, over):
        return lambda: Contestant(partial(seconds_per_call, make_call()), work, over)

    def enter_keras(build, over=tuple(CEILINGS)):
        return enter(lambda: keras_call(build(config), *data, settings), over)

    ours = "keras_vit" + ", XLA" * settings.jit_compile + ", remat" * settings.remat
    rivals = (*torch_models.TORCH_PEERS, *keras_models.KERAS_PEERS, *CEILINGS)
    makers = {ours: enter_keras(partial(keras_models.build_keras_vit, remat=settings.remat), rivals)}
    kind = "cuda" if keras_models.device_name() else "cpu"
    for name, compiled in torch_models.TORCH_PEERS.items():
        if name in settings.peers and case.model in torch_models.NAMES:
            place = torch_models.Place(kind, case.precision, compiled, settings.remat)
            makers[name] = enter(partial(torch_call, case.model, case.image_size, data, place), tuple(CEILINGS))
    for peer, (has, build) in keras_models.KERAS_PEERS.items():
        if peer in settings.peers and has(config):
            makers[peer] = enter_keras(build)
    device = "gpu" if keras_models.device_name() else "cpu"
    dtype = case.precision.removeprefix("mixed_")
    return makers | {name: partial(measure, dtype, device) for name, measure in CEILINGS.items()}


def enter_inference(case: Case, settings: Settings):
    """A batch of images to logits."""
    settings = dataclasses.replace(settings, remat=False)
    return enter_models(case, settings, keras_models.infer, torch_models.infer, 1, 1)


def enter_training(case: Case, settings: Settings):
    """A step of SGD with momentum."""
    return enter_models(case, settings, keras_models.train, torch_models.train, TRAINING_PASSES, 2)


def enter_growth(case: Case, settings: Settings):
    """Inference over image sizes, whose work is the FLOPs, or over batches, whose work is the images."""
    if case.kind == "batches":
        cases = {f"batch {batch}": dataclasses.replace(case, batch=batch) for batch in GROWING_BATCHES}
    else:
        step = getattr(keras_models.configure(case), "pixels_per_token", (1,))[0]
        # In proportion, where the first is not 224, and a whole number of patches.
        sizes = [size * case.image_size // GROWING_SIZES[0] // step * step for size in GROWING_SIZES]
        cases = {f"{size} px": dataclasses.replace(case, image_size=size) for size in sizes}
    first = next(iter(cases))

    def enter(name, case):
        config = keras_models.configure(case)
        images, _ = random_data(case.batch, config)
        call = keras_models.infer(keras_models.build_keras_vit(config), images, settings)
        work = count_flops(config) * case.batch
        return Contestant(partial(seconds_per_call, call), work, () if name == first else (first,))

    return {name: partial(enter, name, case) for name, case in cases.items()}
