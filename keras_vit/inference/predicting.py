"""`predict`, for one image or several from any source; and `predict_each`, for more than memory holds."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np

from keras_vit.errors import COUNT, ImageError, printable, require_within
from keras_vit.inference.classifiers import ExportedModel, open_classifier
from keras_vit.inference.listing import list_images, means_several, read_from_anywhere
from keras_vit.models.preprocessing import require_finite, to_probabilities

if TYPE_CHECKING:
    import keras

    from keras_vit.images.pixels import Picture

    Asked: TypeAlias = keras.Model | ExportedModel | str | os.PathLike[str]

BATCH_SIZE = 32


@dataclass(frozen=True, repr=False)
class Prediction:
    """The most likely classes of an image, in this order; iterating gives pairs (name, probability).

    Args:
        names: names of the classes; their numbers if the model has no names.
        probabilities: probabilities of these classes, each in [0, 1].
        image: the path that was given; None for other images.

    >>> prediction = Prediction(("cat", "dog"), (0.9, 0.1), "a.jpg")
    >>> prediction
    Prediction(a.jpg: cat 90.0%, dog 10.0%)
    >>> prediction.name, dict(prediction)
    ('cat', {'cat': 0.9, 'dog': 0.1})
    """

    names: tuple[str | int, ...]
    probabilities: tuple[float, ...]
    image: str | None = None

    @property
    def name(self) -> str | int:
        """The most likely class."""
        return self.names[0]

    @property
    def probability(self) -> float:
        """The probability of the most likely class."""
        return self.probabilities[0]

    def __iter__(self) -> Iterator[tuple[str | int, float]]:
        return iter(zip(self.names, self.probabilities, strict=True))

    def __len__(self) -> int:
        return len(self.names)

    def __str__(self) -> str:
        classes = ", ".join(f"{printable(name)} {share:.1%}" for name, share in self)
        return classes if self.image is None else f"{printable(self.image)}: {classes}"

    def __repr__(self) -> str:
        return f"Prediction({self})"

    def as_dict(self) -> dict[str, Any]:
        """The fields as types of JSON, with probabilities to six digits."""
        classes = [{"class": name, "probability": round(share, 6)} for name, share in self]
        return {"image": self.image, "classes": classes}


@overload
def predict(
    model: "Asked", images: "list[Picture] | tuple[Picture, ...]", top: int = ..., batch_size: int = ...
) -> list[Prediction]: ...


@overload
def predict(
    model: "Asked", images: str | os.PathLike[str], top: int = ..., batch_size: int = ...
) -> Prediction | Any: ...  # a list for a folder or a pattern


@overload
def predict(model: "Asked", images: "Picture", top: int = ..., batch_size: int = ...) -> Prediction: ...


def predict(model, images, top=5, batch_size=BATCH_SIZE):
    """The most likely classes of an image, or of each of a list of images, with names and probabilities.

    The probabilities sum to 1 over all classes if an image has exactly one class. For a model that was trained on
    images with several classes, each is the probability of its class alone (`config.probabilities`). For a model that
    segments, they are the shares of the image's pixels.

    Args:
        model: a model of this package; a name or path for `zoo.load`; the folder of a run; an exported file, or a
            bundle. Load it once if you call often: `inference.open_classifier(name)`.
        images: a path or an https address, the bytes of a file, an image of Pillow, or an array (h, w), (h, w, 1),
            (h, w, 3) or (h, w, 4) of pixels from 0 to 255; or a list of these, of any sizes; or a folder or a pattern
            such as `photos/*.jpg`, for the list of its images.
        top: number of classes for each image.
        batch_size: images at a time; affects only the time.

    Returns:
        A `Prediction`; for a list, a folder or a pattern, a list of them.

    Raises:
        ImageError: when an image cannot be read, or an array's numbers are not pixels.
        KerasVitError: when the model cannot be loaded, or has no classes.

    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None, labels=["cat", "dog"])
    >>> predict(model, np.zeros((40, 50, 3), "uint8"))  # random weights, with a zero head
    Prediction(cat 50.0%, dog 50.0%)
    >>> predict("runs/1", ["cat.jpg", "dog.png"], top=1)  # doctest: +SKIP
    [Prediction(cat.jpg: cat 93.1%), Prediction(dog.png: dog 88.0%)]
    """
    if means_several(images):
        images = list_images([images])
    if isinstance(images, list | tuple):
        return list(predict_each(model, images, top, batch_size))
    return next(predict_each(model, [images], top, batch_size))


def predict_each(
    model: "Asked",
    images: "Iterable[Picture]",
    top: int = 5,
    batch_size: int = BATCH_SIZE,
    skip: Callable[["Picture", ImageError], object] | None = None,
) -> Iterator[Prediction]:
    """`predict` for any number of images, in order; memory holds only a few batches of them.

    Args:
        model, top, batch_size: as for `predict`.
        images: any iterable, read as the predictions are consumed.
        skip: called with an unreadable image and its error; that image is then left out. None raises the error.

    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None, labels=["cat", "dog"])
    >>> images = (np.full((8, 8, 3), grey, "uint8") for grey in range(5))
    >>> [prediction.name for prediction in predict_each(model, images, batch_size=2)]
    ['cat', 'cat', 'cat', 'cat', 'cat']
    """
    require_within(COUNT, top=top, batch_size=batch_size)
    model = open_classifier(model)
    answers = ask(model, model.predict_on_batch, images, batch_size, skip)
    return (found for batch, logits in answers for found in as_predictions(model, batch, np.asarray(logits), top))


def raise_error(image, error):
    raise error


def compute_ahead(function, images, count, skip):
    """Yields function(image) for each readable image, in order; several threads compute at most `count` ahead."""
    waiting = deque()

    def finish():
        image, future = waiting.popleft()
        try:
            yield future.result()
        except ImageError as error:
            skip(image, error)

    with ThreadPoolExecutor(min(os.cpu_count() or 1, 8)) as pool:
        try:
            for image in images:
                is_animated = getattr(image, "is_animated", False)
                wait([future for other, future in waiting if other is image])  # two threads cannot read one of Pillow's
                waiting.append((image, pool.submit(function, image)))
                if is_animated:  # Pillow shows the next frame in the same object
                    wait([waiting[-1][1]])
                if len(waiting) == count:
                    yield from finish()
            while waiting:
                yield from finish()
        finally:
            for _, future in waiting:
                future.cancel()


def ask(model, run, images, batch_size, skip, with_pixels=False):
    """Yields (list of images, result of `run` for their inputs) for batches of the readable images.

    `with_pixels`: whether to yield pairs (image, its pixels) in place of images.
    """

    def prepare(image):
        pixels = read_from_anywhere(image, model.config.num_channels)
        return (image, pixels) if with_pixels else image, np.asarray(model.preprocessing(pixels[None]))[0]

    if isinstance(images, str | os.PathLike):  # a folder or a pattern, not its letters
        images = list_images([images])
    readable = compute_ahead(prepare, images, 2 * batch_size, skip or raise_error)
    while batch := list(islice(readable, batch_size)):
        asked, inputs = zip(*batch, strict=True)
        yield asked, run(np.stack(inputs))


def as_predictions(model, images, logits, top):
    require_finite(logits, model)
    if logits.ndim == 4:
        counts = [np.bincount(mask.ravel(), minlength=logits.shape[-1]) for mask in logits.argmax(-1)]
        probabilities = scores = np.array(counts) / logits[0, ..., 0].size
    else:
        probabilities, scores = to_probabilities(logits.astype("float64"), model), logits
    for image, shares, row in zip(images, probabilities, scores, strict=True):
        best = np.argsort(-row, kind="stable")[:top]  # among equally likely classes the first comes first
        names = tuple(model.labels[i] if model.labels else int(i) for i in best)
        path = os.fspath(image) if isinstance(image, str | os.PathLike) else None
        yield Prediction(names, tuple(float(shares[i]) for i in best), path)
