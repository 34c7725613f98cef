"""`segment`, for the class of every pixel of one image or several; `segment_each`, for more than memory holds."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_vit.errors import ConfigError, ImageError
from keras_vit.images.pixels import crop_offset
from keras_vit.inference.classifiers import open_classifier
from keras_vit.inference.listing import list_images, means_several
from keras_vit.inference.predicting import ask

if TYPE_CHECKING:
    from keras_vit.images.pixels import Picture
    from keras_vit.inference.predicting import Asked

UNSEEN = 255  # the class number of pixels outside the model's crop, as of ignored pixels in training masks
BATCH_SIZE = 8


def segment(model: "Asked", images: Any) -> Any:
    """The class of every pixel of an image, or of each of a list of images.

    Args:
        model: as for `predict`, fine-tuned on masks or made with `classifier="patches"`.
        images: as for `predict`.

    Returns:
        Class numbers, uint8 (height, width) of the upright image, 255 outside the model's crop; for a list, a folder or
        a pattern a list of them.

    Raises:
        ImageError: when an image cannot be read.
        ConfigError: for a model with one class per image.

    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None, num_classes=3, classifier="patches")
    >>> segment(model, np.zeros((40, 50, 3), "uint8")).shape
    (40, 50)
    """
    if means_several(images):
        images = list_images([images])
    if isinstance(images, list | tuple):
        return [mask for _, _, mask in segment_each(model, images)]
    return next(segment_each(model, [images]))[2]


def segment_each(
    model: "Asked",
    images: "Iterable[Picture]",
    batch_size: int = BATCH_SIZE,
    skip: Callable[["Picture", ImageError], object] | None = None,
) -> Iterator[tuple["Picture", np.ndarray, np.ndarray]]:
    """`segment` for any number of images: yields each image, its pixels uint8 (h, w, channels), and its mask.

    Args:
        model: as for `segment`.
        images, batch_size, skip: as for `predict_each`.
    """
    model = open_classifier(model)
    if model.config.classifier != "patches":
        raise ConfigError(
            "The model gives an image one class, not each pixel. Fine-tune a model on masks: keras-vit finetune "
            "--task segmentation --data masks:FOLDER."
        )
    if batch_size < 1 or model.config.num_classes > UNSEEN:
        raise ConfigError(
            f"segment takes batches of one image or more, and models of at most {UNSEEN} classes. Received: "
            f"batch_size={batch_size}, and {model.config.num_classes} classes."
        )
    return segment_batches(model, images, batch_size, skip)


def segment_batches(model, images, batch_size, skip):
    for batch, logits in ask(model, model.predict_on_batch, images, batch_size, skip, with_pixels=True):
        for (image, pixels), classes in zip(batch, np.asarray(logits).argmax(-1), strict=True):
            yield image, pixels, spread(classes, pixels.shape[:2], model.preprocessing)


def spread(classes, size, preprocessing):
    """Maps class numbers (h, w) of a model's input to the image, uint8 `size`, by the nearest pixel."""
    whole = preprocessing.size_before_crop(*size)
    places = [
        ((np.arange(length) + 0.5) * resized / length).astype(int) - start
        for length, resized, start in zip(size, whole, crop_offset(np.array(whole), classes.shape), strict=True)
    ]
    seen = [(place >= 0) & (place < length) for place, length in zip(places, classes.shape, strict=True)]
    mask = np.full(size, UNSEEN, "uint8")
    mask[np.ix_(*seen)] = classes[np.ix_(*(place[known] for place, known in zip(places, seen, strict=True)))]
    return mask
