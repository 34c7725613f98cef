"""Inference, training steps and growth: our models beside the peers', and beside the machine's own ceilings.

The ceilings are what the framework reaches in bare matrix products and convolutions, in the same rounds: a model's rate
divided by the matrix product's is its share of what the machine can do.
"""

import dataclasses
from functools import partial

import numpy as np
from keras import ops
from keras.backend import backend

from benchmarks import keras_models, torch_models
from benchmarks.subjects import CEILINGS, Case, Contestant, Settings
from keras_vit.evaluation.device.measuring import name_accelerator, seconds_per_call
from keras_vit.models.cost import count_flops

GROWING_SIZES = (224, 384, 512, 768, 1024, 1536, 2048)
GROWING_BATCHES = (1, 2, 4, 8, 16, 32)
GROWING_MODELS = (("ViT-Ti/16", "ViT-S/16", "ViT-B/16", "ViT-L/16", "ViT-H/14"), ("R50x1", "R101x1", "R152x2"))
TRAINING_PASSES = 3  # the gradient takes twice the forward pass
TIMES = 4  # products, one after the other, in a call: reading the result is then little beside them
SIDE = {"cpu": 1536, "gpu": 8192}  # of the square matrices
IMAGES = {"cpu": (8, 28, 28, 128), "gpu": (64, 28, 28, 512)}  # (n, h, w, c) of a 3x3 convolution to as many channels


def repeat(operate, x, weights, operations, dtype):
    """The contestant that applies `operate(x, weights)` to its own result, TIMES times."""

    def call(x, weights):
        for _ in range(TIMES):
            x = operate(x, weights)
        return ops.sum(ops.cast(x, "float32"))

    given = [ops.cast(ops.convert_to_tensor(values.astype("float32")), dtype) for values in (x, weights)]
    return Contestant(partial(seconds_per_call, keras_models.compile_call(call, given)), TIMES * operations)


def measure_matrix_product(dtype: str, kind: str) -> Contestant:
    """Products of square matrices of a dtype, on a "cpu" or "gpu"; its work is in operations."""
    rng, side = np.random.default_rng(0), SIDE[kind]
    x, weights = rng.normal(size=(2, side, side)) / [[[1]], [[side**0.5]]]  # results keep their size
    return repeat(ops.matmul, x, weights, 2 * side**3, dtype)


def measure_convolution(dtype: str, kind: str) -> Contestant:
    """3x3 convolutions as in the middle of a ResNet-50; its work is in operations."""
    rng, shape = np.random.default_rng(0), IMAGES[kind]
    channels = shape[-1]
    weights = rng.normal(size=(3, 3, channels, channels)) / (9 * channels) ** 0.5
    operations = 2 * 9 * channels * np.prod(shape)
    convolve = partial(ops.conv, padding="same", data_format="channels_last")
    return repeat(convolve, rng.normal(size=shape), weights, float(operations), dtype)


MEASURES = dict(zip(CEILINGS, (measure_matrix_product, measure_convolution), strict=True))


def random_data(batch, config):
    """Images (n, h, w, 3) in [-1, 1] and labels (n,)."""
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (batch, *config.image_size, config.num_channels)).astype("float32")
    return images, rng.integers(0, max(config.num_classes, 1), batch)


def enter_models(case: Case, settings: Settings, keras_call, torch_call, passes, inputs, others=()):
    """The makers of a model's contestants: ours, the peers that have it, the ceilings.

    Args:
        keras_call, torch_call: from a model, the data and more to a function of no argument.
        passes: of the network that a call makes.
        inputs: how many of images and labels the calls take.
        others: {what is said of it: another `keras_call` of our model}.
    """
    config = keras_models.configure(case)
    work = passes * count_flops(config) * case.batch
    data = random_data(case.batch, config)[:inputs]

    def enter(make_call, over):
        return lambda: Contestant(partial(seconds_per_call, make_call()), work, over)

    def enter_keras(build, over=CEILINGS):
        return enter(lambda: keras_call(build(config), *data), over)

    ours = "keras_vit" + ", remat" * settings.remat
    rivals = (*torch_models.TORCH_PEERS, *keras_models.KERAS_PEERS, *CEILINGS)
    build_ours = partial(keras_models.build_keras_vit, remat=settings.remat)
    makers = {ours: enter_keras(build_ours, rivals)}
    for name, call in dict(others).items():
        makers[f"{ours}, {name}"] = enter(lambda call=call: call(build_ours(config), *data), torch_models.TORCH_PEERS)
    device = "gpu" if name_accelerator() else "cpu"
    place = torch_models.Place("cuda" if device == "gpu" else "cpu", case.precision, checkpointing=settings.remat)
    for name, compiled in torch_models.TORCH_PEERS.items():
        if name in settings.peers and case.model in torch_models.NAMES:
            own = dataclasses.replace(place, compiled=compiled)
            makers[name] = enter(partial(torch_call, case.model, case.image_size, data, own), CEILINGS)
    for peer, (has, build) in keras_models.KERAS_PEERS.items():
        if peer in settings.peers and has(config):
            makers[peer] = enter_keras(build)
    dtype = case.precision.removeprefix("mixed_")
    return makers | {name: partial(measure, dtype, device) for name, measure in MEASURES.items()}


def enter_inference(case: Case, settings: Settings):
    """A batch of images to logits. By XLA, as a folded model's `predict` after `jit_compile = True`."""
    settings = dataclasses.replace(settings, remat=False)
    others = {"XLA": partial(keras_models.infer, by_xla=True)} if backend() == "tensorflow" else {}
    return enter_models(case, settings, keras_models.infer, torch_models.infer, 1, 1, others)


def enter_training(case: Case, settings: Settings):
    return enter_models(case, settings, keras_models.train, torch_models.train, TRAINING_PASSES, 2)


def enter_growth(case: Case, settings: Settings):
    """Inference over image sizes, batches or models, beside the first of them; the work is the FLOPs."""
    if case.kind == "batches":
        cases = {f"batch {batch}": dataclasses.replace(case, batch=batch) for batch in GROWING_BATCHES}
    elif case.kind == "models":
        family = next((names for names in GROWING_MODELS if case.model in names), (case.model,))
        cases = {name: dataclasses.replace(case, model=name) for name in family}
    else:
        step = getattr(keras_models.configure(case), "pixels_per_token", (1,))[0]
        # In proportion, where the first is not 224, and a whole number of patches.
        sizes = [size * case.image_size // GROWING_SIZES[0] // step * step for size in GROWING_SIZES]
        cases = {f"{size} px": dataclasses.replace(case, image_size=size) for size in sizes}
    first = next(iter(cases))

    def enter(name, case):
        config = keras_models.configure(case)
        images, _ = random_data(case.batch, config)
        call = keras_models.infer(keras_models.build_keras_vit(config), images)
        work = count_flops(config) * case.batch
        return Contestant(partial(seconds_per_call, call), work, () if name == first else (first,))

    return {name: partial(enter, name, case) for name, case in cases.items()}
