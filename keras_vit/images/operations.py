"""What each operation of RandAugment does at a strength, in numbers. No TensorFlow here.

The operations and strengths are those of EfficientNet's TPU code, as AugReg used them (arXiv 1909.13719, 2106.10270).
"""

import math
from enum import IntEnum
from typing import NamedTuple

import numpy as np

GREY = 128.0
LUMA = (0.2989, 0.5870, 0.1140)  # with its scale, 255.5 / 255, that of tf.image.rgb_to_grayscale
TIE = 2**-10  # is added before rounding down, so that devices which compute in another order round alike
VALUES = np.arange(256, dtype="float32")
IDENTITY = (1, 0, 0, 0, 1, 0)


class Kind(IntEnum):
    """The way in which an operation changes an image."""

    LOOK_UP = 0  # each value becomes that of a table
    AUTOCONTRAST = 1
    EQUALIZE = 2
    COLOR = 3
    SHARPNESS = 4
    MOVE = 5  # each pixel takes the value of the nearest to another place
    PAINT = 6  # a square becomes grey


# A draw is an index into these, so another order would change the augmentation of every run.
OPERATIONS = {
    "autocontrast": Kind.AUTOCONTRAST,
    "equalize": Kind.EQUALIZE,
    "invert": Kind.LOOK_UP,
    "rotate": Kind.MOVE,
    "posterize": Kind.LOOK_UP,
    "solarize": Kind.LOOK_UP,
    "color": Kind.COLOR,
    "contrast": Kind.LOOK_UP,
    "brightness": Kind.LOOK_UP,
    "sharpness": Kind.SHARPNESS,
    "shear_x": Kind.MOVE,
    "shear_y": Kind.MOVE,
    "translate_x": Kind.MOVE,
    "translate_y": Kind.MOVE,
    "cutout": Kind.PAINT,
    "solarize_add": Kind.LOOK_UP,
}


def enhance_factor(strength):
    """The weight of the image; the rest is that of its degenerate form: grey, black or smoothed."""
    return 1.8 * strength + 0.1


def blend_values(degenerate, strength):
    factor = np.float32(enhance_factor(strength))
    return np.floor(np.clip(degenerate + factor * (VALUES - degenerate), 0, 255) + TIE)


def make_tables(strength, height, width):
    """{operation: what it makes of each value, (256,)}."""
    unit = 2.0 ** (8 - min(8, max(1, int(4 * strength))))
    return {
        "invert": 255 - VALUES,
        # Keeps int(4 * strength) bits, at least 1: TensorFlow shifts a byte by at most 7.
        "posterize": np.floor(VALUES / unit) * unit,
        "solarize": np.where(VALUES < int(256 * strength), VALUES, 255 - VALUES),
        "solarize_add": np.where(VALUES < 128, np.minimum(VALUES + int(110 * strength), 255), VALUES),
        "brightness": blend_values(np.float32(0), strength),
        # A grey of (number of pixels) / 256, at most 255, as in the TPU code; Pillow uses the mean.
        "contrast": blend_values(np.float32(min(255, height * width // 256)), strength),
    }


def make_matrices(strength, height, width):
    """{operation: (a, b, c, d, e, f)}: a pixel (x, y) takes the value at (a x + b y + c, d x + e y + f)."""
    cos, sin = (function(math.radians(30 * strength)) for function in (math.cos, math.sin))
    x, y = (width - 1) / 2, (height - 1) / 2
    return {
        "rotate": (cos, -sin, x - x * cos + y * sin, sin, cos, y - x * sin - y * cos),  # about the centre
        "shear_x": (1, 0.3 * strength, 0, 0, 1, 0),
        "shear_y": (1, 0, 0, 0.3 * strength, 1, 0),
        "translate_x": (1, 0, 100 * strength, 0, 1, 0),
        "translate_y": (1, 0, 0, 0, 1, 100 * strength),
    }


class Strength(NamedTuple):
    """All operations at one strength, on images of one size."""

    kinds: np.ndarray  # int32 (16,)
    tables: np.ndarray  # uint8 (16, 256)
    matrices: np.ndarray  # float32 (32, 6): operation i to one side at 2 i, to the other at 2 i + 1
    factor: float  # of COLOR and SHARPNESS
    half: int  # half the side of the square that PAINT paints


def measure(magnitude, height, width):
    """The operations of strength magnitude / 10."""
    strength, size = magnitude / 10, (height, width)
    tables, sides = make_tables(strength, *size), [make_matrices(side * strength, *size) for side in (1, -1)]
    return Strength(
        np.array(list(OPERATIONS.values()), "int32"),
        np.array([tables.get(name, VALUES) for name in OPERATIONS]).astype("uint8"),
        np.array([matrices.get(name, IDENTITY) for name in OPERATIONS for matrices in sides], "float32"),
        enhance_factor(strength),
        int(40 * strength),
    )
