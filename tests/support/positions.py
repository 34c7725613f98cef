"""The rows and columns of Table 8 as tiny models, shared by the tests of position embeddings in every room."""

import keras
import numpy as np

from keras_vit import models

PLACES = ("stem", "every-layer", "every-layer-shared")
TABLE8 = (("none", "stem"), ("relative", "stem"), *((kind, place) for kind in ("1d", "2d") for place in PLACES))
KINDS = (*TABLE8, ("sincos2d", "stem"))  # the last is big_vision's
GRID = (2, 3)
SIZES = {"image_size": (16, 24), "patch_size": 8, "hidden_size": 16, "num_layers": 2, "num_heads": 2, "mlp_dim": 24}


def make(kind, place="stem", noise=0.2, **fields):
    """A ViT of two blocks on 2 x 3 patches, no weight of which is at its initial value."""
    keras.utils.set_random_seed(0)
    fields = {**SIZES, "num_classes": 3, **fields}
    model = models.VisionTransformer(position_embedding=kind, position_embedding_at=place, **fields)
    random = np.random.default_rng(1)
    for weight in model.weights:
        weight.assign(weight + random.normal(0, noise, weight.shape))
    return model


def blocks(batch):
    """Images of patches of one colour each, which differ more than noise does."""
    colours = np.random.default_rng(3).uniform(-1, 1, (batch, *GRID, 3)).astype("float32")
    return colours.repeat(8, axis=1).repeat(8, axis=2)


def images(batch=2, size=SIZES["image_size"]):
    return np.random.default_rng(2).uniform(-1, 1, (batch, *size, 3)).astype("float32")


def answer(model, x):
    return keras.ops.convert_to_numpy(model(x, training=False))


def position_weights(model):
    """The variables that tell places apart."""
    return [v for v in model.trainable_variables if "posembed" in v.path or "relative" in v.path]


def sines_and_cosines(rows, columns, width):
    """big_vision's models/vit.py, posemb_sincos_2d, a number at a time: sin(x), cos(x), sin(y), cos(y)."""
    quarter, positions = width // 4, np.zeros((1, rows * columns, width))
    for y, x, i in np.ndindex(rows, columns, quarter):
        omega = 1 / 10_000 ** (i / (quarter - 1))
        for part, value in enumerate((np.sin(x * omega), np.cos(x * omega), np.sin(y * omega), np.cos(y * omega))):
            positions[0, y * columns + x, part * quarter + i] = value
    return positions


def whole(model):
    """A ViT's layers with every token of every block; the model's graph has the class token alone of the last."""
    norm = model.get_layer("encoder_norm")
    x = norm.output
    for layer in model.layers[model.layers.index(norm) + 1 :]:  # pool and head, in a row
        x = layer(x)
    return keras.Model(model.input, x)
