"""Preprocessing of images to a model's inputs, as data and as a callable, and probabilities from its logits.

Imports Keras only when called.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from keras_vit.errors import ConfigError, ImageError
from keras_vit.images.pillow import MOST_PIXELS
from keras_vit.images.pixels import crop_offset, passes, require_images, resize_and_crop, size_before_crop
from keras_vit.models.config import is_number, pair, require

LEAST_CROP = 0.01
CROP_MODES = ("center", "squash")
INTERPOLATIONS = ("bilinear", "bicubic", "lanczos3", "nearest")


def per_channel(name, values, least, most):
    """The values as a tuple of floats, one per channel."""
    fits = hasattr(values, "__iter__") and not isinstance(values, (str, bytes, dict, set))
    channels = tuple(values) if fits else ()
    require(
        channels and all(is_number(value) and least <= value <= most for value in channels),
        f"{name} must hold a number from {least:g} to {most:g} for each channel. Received: {name}={values!r}.",
    )
    return tuple(map(float, channels))


@dataclass(frozen=True)
class UnknownPreprocessing:
    """Takes the place of a `Preprocessing` that the model's files do not state; `unknown` says why."""

    unknown: str


@dataclass(frozen=True)
class Preprocessing:
    """The preprocessing that the weights were evaluated with.

    Args:
        image_size: (height, width) of the model's input.
        crop: share of the resized image that a central crop keeps, in [0.01, 1]. The image is first resized, with
            antialiasing, to image_size / crop, rounded down as torchvision does. None resizes directly to image_size,
            without keeping the aspect ratio or antialiasing, as vision_transformer and big_transfer do.
        interpolation: "bilinear", "bicubic", "lanczos3" or "nearest".
        mean, std: per channel, of pixels scaled to [0, 1]; 0.5 and 0.5 make [-1, 1].
        crop_mode: "center" resizes the short side to image_size / crop and keeps the aspect ratio, "squash" resizes
            both sides (timm's names).

    Called on uint8 images (n, h, w, c) of any one size, it returns float32 `(n, *image_size, c)`. Other shapes, and
    numbers other than pixels from 0 to 255, such as floats up to 1, raise an ImageError (within a graph: the shape).

    >>> tuple(Preprocessing((224, 224))(np.zeros((1, 300, 400, 3), "uint8")).shape)
    (1, 224, 224, 3)
    """

    image_size: tuple[int, int] = (224, 224)
    crop: float | None = None
    interpolation: Literal["bilinear", "bicubic", "lanczos3", "nearest"] = "bilinear"
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    crop_mode: Literal["center", "squash"] = "center"

    def __post_init__(self):
        object.__setattr__(self, "image_size", pair("image_size", self.image_size))
        object.__setattr__(self, "mean", per_channel("mean", self.mean, -1e6, 1e6))
        object.__setattr__(self, "std", per_channel("std", self.std, 1e-6, 1e6))
        require(
            len(self.mean) == len(self.std),
            f"mean and std must have equally many channels. Received: {len(self.mean)} and {len(self.std)}.",
        )
        height, width = self.image_size
        require(
            height * width <= MOST_PIXELS,
            f"image_size must be of at most {MOST_PIXELS:,} pixels. Received: {height} x {width}.",
        )
        for name, known in (("interpolation", INTERPOLATIONS), ("crop_mode", CROP_MODES)):
            value = getattr(self, name)
            require(value in known, f"{name} must be one of: {', '.join(known)}. Received: {value!r}.")
        require(
            self.crop is None or (is_number(self.crop) and LEAST_CROP <= self.crop <= 1),
            f"crop must be in [{LEAST_CROP}, 1], or None. Received: crop={self.crop!r}.",
        )

    def __call__(self, images: Any) -> Any:
        from keras import backend, ops

        require_images(images, len(self.mean))
        if isinstance(images, np.ndarray) and backend.backend() == "jax":  # which would compile for every size
            return self.normalize(resize_and_crop(images, self.size_before_crop(*images.shape[1:3]), self))
        x = ops.cast(images, "float32")
        return self.normalize(self.resize_and_crop(x, ops))

    def normalize(self, images):
        """Scales pixels (..., c) in [0, 255] to the model's range, float32."""
        from keras import ops

        x = ops.cast(images, "float32")
        return (x / 255.0 - ops.convert_to_tensor(self.mean)) / ops.convert_to_tensor(self.std)

    def require_normalized(self, images):
        """Refuses numbers far outside the range of `normalize`, such as float pixels from 0 to 255; uint8 may be any.

        Numbers may lie outside by four times the width of the range, enough for noise and for standardized images.

        Raises:
            ImageError: with the range received, and how to preprocess a dataset.
        """
        if images.dtype == "uint8" or not images.size:
            return
        mean, std = np.array(self.mean), np.array(self.std)
        low, high = float((-mean / std).min()), float(((1 - mean) / std).max())
        least, most = float(images.min()), float(images.max())
        if least < low - 4 * (high - low) or most > high + 4 * (high - low):
            raise ImageError(
                f"The model takes uint8 images, or outputs of model.preprocessing: numbers from {low:.5g} to "
                f"{high:.5g}. Received: {images.dtype} from {least:.5g} to {most:.5g}. Preprocess a tf.data.Dataset by "
                "ds.map(lambda x, y: (model.preprocessing(x), y)), and arrays by model.preprocessing(images)."
            )

    def resize_and_crop(self, x, ops):
        height, width = ops.shape(x)[1:3]
        size = self.size_before_crop(height, width)
        antialias = self.crop is not None and self.interpolation != "nearest"
        for part in passes(height, size, self.interpolation):
            x = ops.clip(ops.image.resize(x, part, self.interpolation, antialias, data_format="channels_last"), 0, 255)
        top, left = crop_offset(np.array(size, "int32"), self.image_size)
        return x[:, top : top + self.image_size[0], left : left + self.image_size[1]]

    def adapt_to(self, image_size, num_channels):
        """The preprocessing for another size (None keeps it) and number of channels, or an `UnknownPreprocessing`."""
        changed = {} if image_size is None else {"image_size": image_size}
        if num_channels != len(self.mean):
            if len(set(self.mean)) > 1 or len(set(self.std)) > 1:
                return UnknownPreprocessing(
                    f"The weights' mean and std differ between their {len(self.mean)} channels, so those for "
                    f"{num_channels} channels are unknown."
                )
            changed |= {"mean": self.mean[:1] * num_channels, "std": self.std[:1] * num_channels}
        return replace(self, **changed)

    def size_before_crop(self, height, width):
        """(height, width) to which an image of the given height and width is resized before the central crop."""
        if self.crop is None:
            return self.image_size
        size = tuple(map(int, size_before_crop(np.array([height, width], "float64"), self)))
        tallest = max(size[0], height)  # while its width is resized
        if tallest * size[1] > MOST_PIXELS:
            raise ImageError(
                f"An image of {height} x {width} pixels is too elongated: resizing it for the crop needs "
                f"{tallest:,} x {size[1]:,} pixels; the limit is {MOST_PIXELS:,}. Crop it first."
            )
        return size


def to_pixels(image, model):
    """Undoes the normalization of a model's input: (..., h, w, c) in [0, 1]."""
    preprocessing = model.preprocessing
    return np.clip(image * np.array(preprocessing.std) + np.array(preprocessing.mean), 0, 1)


def require_finite(logits, model):
    """Returns the logits; refuses those of a damaged model."""
    if not np.isfinite(logits).all():
        raise ConfigError(f"{model.name} gave numbers that are not finite (NaN or infinity). Are its weights damaged?")
    return logits


def to_probabilities(logits, model):
    """Logits (n, num_classes) to a model's probabilities, each in [0, 1], of the same shape and dtype.

    `model.config.probabilities` decides: the softmax if an image has exactly one class, or the sigmoid of each logit if
    it may have several or none. "output", of an exported model: these already are probabilities.
    """
    kind = getattr(getattr(model, "config", None), "probabilities", "softmax")
    if kind == "output":
        return logits
    normalizer = np.logaddexp(0, logits) if kind == "sigmoid" else np.logaddexp.reduce(logits, axis=-1, keepdims=True)
    return np.exp(logits - normalizer)


def preprocessing_of(fields):
    """The `Preprocessing`, or `UnknownPreprocessing`, with the fields from a model's description."""
    return UnknownPreprocessing(str(fields["unknown"])) if set(fields) == {"unknown"} else Preprocessing(**fields)


def require_described(model: Any) -> None:
    """Refuses a model from elsewhere: it has no configuration and no preprocessing."""
    if not hasattr(getattr(model, "config", None), "num_classes"):
        raise ConfigError(
            f"A {type(model).__name__} does not say how images become its input. Expected a model of this package, or "
            "an exported one, as inference.open_model opens it."
        )
