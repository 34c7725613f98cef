"""`segment`: the class of every pixel of an image or several; and `segment_each`, for more than memory holds."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_vit.errors import ConfigError, ImageError
from keras_vit.images.resizing import crop_offset
from keras_vit.inference.classifiers import open_classifier
from keras_vit.inference.listing import list_images, means_several, read_from_anywhere

if TYPE_CHECKING:
    from keras_vit.images.pixels import Picture
    from keras_vit.inference.predicting import Asked

UNSEEN = 255  # the class number of pixels that the model's crop leaves out, as in masks that are trained on
BATCH_SIZE = 8


def segment(model: "Asked", images: Any) -> Any:
    """The class of every pixel of an image, or of each of a list of images.

    Args:
        model: what `predict` takes, fine-tuned on masks or made with `classifier="patches"`.
        images: what `predict` takes.

    Returns:
        Class numbers, uint8 (height, width) of the upright image, 255 where the model's crop leaves it out; of a list,
        a folder or a pattern a list of them.

    Raises:
        ImageError: when an image cannot be read.
        ConfigError: for a model that gives an image one class.

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
    """`segment` for endless images: each image, its pixels uint8 (h, w, channels), and its mask.

    Args:
        model: as `segment`.
        images: any iterable, read as the masks are asked for.
        batch_size: images at a time; it changes the time alone.
        skip: called with an image that cannot be read and the error, and then that image is left out; None raises.
    """
    model = open_classifier(model)
    if model.config.classifier != "patches":
        raise ConfigError(
            f"{model.name} gives an image one class, not each pixel. Fine-tune a model on masks: keras-vit finetune "
            "--task segmentation --data masks:FOLDER."
        )
    return segment_batches(model, read_each(images, model.config.num_channels, skip), batch_size)


def read_each(images, channels, skip):
    """(image, its pixels) of those that can be read."""
    for image in images:
        try:
            yield image, read_from_anywhere(image, channels)
        except ImageError as error:
            if skip is None:
                raise
            skip(image, error)


def segment_batches(model, pictures, batch_size):
    while batch := list(itertools.islice(pictures, batch_size)):
        inputs = np.concatenate([np.asarray(model.preprocessing(pixels[None])) for _, pixels in batch])
        logits = np.asarray(model.predict_on_batch(inputs))
        for (image, pixels), classes in zip(batch, logits.argmax(-1), strict=True):
            yield image, pixels, spread(classes, pixels.shape[:2], model.preprocessing)


def spread(classes, size, preprocessing):
    """Class numbers (h, w) of a model's input as those of the image, uint8 `size`: each has the nearest one's."""
    whole = classes.shape if preprocessing.crop is None else preprocessing.size_before_crop(*size)
    places = [
        ((np.arange(length) + 0.5) * resized / length).astype(int) - start
        for length, resized, start in zip(size, whole, crop_offset(np.array(whole), classes.shape), strict=True)
    ]
    seen = [(place >= 0) & (place < length) for place, length in zip(places, classes.shape, strict=True)]
    mask = np.full(size, UNSEEN, "uint8")
    mask[np.ix_(*seen)] = classes[np.ix_(*(place[known] for place, known in zip(places, seen, strict=True)))]
    return mask
