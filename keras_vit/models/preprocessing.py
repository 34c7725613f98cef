"""How a picture becomes a model's input, as data and as a callable. Imports Keras only when called."""

from dataclasses import dataclass

from keras_vit.errors import ImageError
from keras_vit.models.config import is_number, pair, require

MOST_PIXELS = 50_000_000  # of a resized picture
LEAST_CROP = 0.01


def per_channel(name, values, least, most):
    """The values as a tuple of floats, one per channel."""
    fits = hasattr(values, "__iter__") and not isinstance(values, (str, bytes, dict, set))
    found = tuple(values) if fits else ()
    require(
        found and all(is_number(value) and least <= value <= most for value in found),
        f"{name} must hold a number from {least:g} to {most:g} for each channel. Received: {name}={values!r}.",
    )
    return tuple(map(float, found))


@dataclass(frozen=True)
class Preprocessing:
    """What the weights were evaluated with.

    Args:
        image_size: (height, width) of the model's input.
        crop: the central part of the resized picture that is kept, in (0, 1]; the picture is first resized so that
            its short side is image_size / crop. None resizes straight to image_size, aspect ratio not kept, as the
            authors' evaluation does.
        interpolation: "bilinear" or "bicubic".
        mean, std: per channel, of pixels scaled to [0, 1]; 0.5 and 0.5 give [-1, 1].

    Called on uint8 pictures (n, h, w, c) of any one size, gives float32 (n, *image_size, c).

    >>> Preprocessing((224, 224))(numpy.zeros((1, 300, 400, 3), "uint8")).shape
    (1, 224, 224, 3)
    """

    image_size: tuple = (224, 224)
    crop: float | None = None
    interpolation: str = "bilinear"
    mean: tuple = (0.5, 0.5, 0.5)
    std: tuple = (0.5, 0.5, 0.5)

    def __post_init__(self):
        for name, value in (
            ("image_size", pair("image_size", self.image_size)),
            ("mean", per_channel("mean", self.mean, -1e6, 1e6)),
            ("std", per_channel("std", self.std, 1e-6, 1e6)),
        ):
            object.__setattr__(self, name, value)
        require(
            len(self.mean) == len(self.std),
            f"mean and std must be of equally many channels. Received: {len(self.mean)} and {len(self.std)}.",
        )
        height, width = self.image_size
        require(
            height * width <= MOST_PIXELS,
            f"image_size must be of at most {MOST_PIXELS:,} pixels. Received: {height} x {width}.",
        )
        require(
            self.interpolation in ("bilinear", "bicubic"),
            f"interpolation must be 'bilinear' or 'bicubic'. Received: {self.interpolation!r}.",
        )
        require(
            self.crop is None or (is_number(self.crop) and LEAST_CROP <= self.crop <= 1),
            f"crop must be in [{LEAST_CROP}, 1], or None. Received: crop={self.crop!r}.",
        )

    def __call__(self, images):
        from keras import ops

        x = ops.cast(images, "float32")
        x = self.resize_and_crop(x, ops)
        return (x / 255.0 - ops.convert_to_tensor(self.mean)) / ops.convert_to_tensor(self.std)

    def resize_and_crop(self, x, ops):
        if self.crop is None:
            return ops.image.resize(x, self.image_size, interpolation=self.interpolation)
        height, width = x.shape[1:3]
        scale = max(self.image_size[0] / self.crop / height, self.image_size[1] / self.crop / width)
        size = tuple(
            max(round(length * scale), part) for length, part in zip((height, width), self.image_size, strict=True)
        )
        if size[0] * size[1] > MOST_PIXELS:
            raise ImageError(
                f"A picture of {height} x {width} pixels is too narrow: resized for the crop it would have "
                f"{size[0]:,} x {size[1]:,}, and at most {MOST_PIXELS:,} are made. Cut its ends off first."
            )
        x = ops.image.resize(x, size, interpolation=self.interpolation, antialias=True)
        top, left = ((length - part) // 2 for length, part in zip(size, self.image_size, strict=True))
        return x[:, top : top + self.image_size[0], left : left + self.image_size[1]]
