"""Opens anything that can predict: a model, a name, a run, a checkpoint, an exported file or a bundle."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from keras_vit import zoo
from keras_vit.errors import ConfigError, ExportError
from keras_vit.export.opening import Artefact, open_artefact
from keras_vit.inference.listing import state_of
from keras_vit.models.config import Classifier, ProbabilityKind
from keras_vit.models.folding import fold_in_place
from keras_vit.models.preprocessing import Preprocessing, require_described
from keras_vit.models.variants import VARIANTS
from keras_vit.training.runs.run_folder import model_of

if TYPE_CHECKING:
    import keras


@dataclass(frozen=True)
class ExportedConfig:
    """The configuration of an exported model, as far as it is known."""

    num_classes: int
    num_channels: int
    image_size: tuple[int, int]
    probabilities: ProbabilityKind | Literal["output"] | None
    classifier: Classifier = "gap"  # or "patches", if an image has several rows of outputs


class ExportedModel:
    """An artefact in its own runtime, used like a model of this package.

    Args:
        artefact: the opened artefact.
        preprocessing: its preprocessing of uint8 images.
        labels: names of its classes, or None.
        shape: shape of its outputs for one image; the last length is the number of classes.
        probabilities: how they become probabilities, as for `VisionTransformer`; "output" if they are; None for
            vectors.
    """

    def __init__(
        self,
        artefact: Artefact,
        preprocessing: Preprocessing,
        labels: tuple[str, ...] | None,
        shape: tuple[int, ...],
        probabilities: ProbabilityKind | Literal["output"] | None = "softmax",
    ):
        self.name, self.preprocessing, self.labels = artefact.path.name, preprocessing, labels
        self.path = artefact.path
        self.config = ExportedConfig(
            *(shape[-1], len(preprocessing.mean), preprocessing.image_size, probabilities),
            classifier="patches" if len(shape) > 2 else "gap",
        )
        self.run = artefact.run

    @property
    def gives_vectors(self) -> bool:
        """Whether it counts as an embedding model: it has no class names."""
        return self.labels is None

    def predict_on_batch(self, images: Any) -> np.ndarray:
        """Images (n, h, w, c), float or uint8, to logits (n, num_classes), or (n, h, w, num_classes)."""
        images = np.asarray(images)
        raw = images.dtype == "uint8"  # normalized as by a model of this package
        return self.run(np.asarray(self.preprocessing.normalize(images) if raw else images, "float32"))

    def __call__(self, images: Any, training: bool = False) -> np.ndarray:
        return self.predict_on_batch(images)


def open_model(
    model: "keras.Model | ExportedModel | str | os.PathLike", like: "str | os.PathLike | keras.Model | None" = None
) -> "keras.Model | ExportedModel":
    """Opens the argument `model` of a command, `predict` or `embed`, with or without classes.

    Args:
        model: a model of this package, which is returned; a name or path for `zoo.load`, or the folder of a run: its
            model is folded (`models.fold`); an exported file or folder, or a bundle (its first artefact).
        like: the source of preprocessing and labels for an exported file that states none, such as the run that it was
            exported from; of any kind that `model` may have.

    Raises:
        ConfigError: for a model from elsewhere, or an exported file whose preprocessing is not known.
        KerasVitError: as for `zoo.load`, or for an exported file that cannot be opened.
    """
    if isinstance(model, str | os.PathLike):
        model = open_by_name(model, like)
    require_described(model)
    return model


def open_classifier(
    model: "keras.Model | ExportedModel | str | os.PathLike", like: "str | os.PathLike | keras.Model | None" = None
) -> "keras.Model | ExportedModel":
    """`open_model` for a model with classes.

    Raises:
        ConfigError: for a model without a head.

    >>> open_classifier("dist/model.tflite").labels  # doctest: +SKIP
    ('cat', 'dog')
    """
    model = open_model(model, like)
    is_vector = model.config.probabilities is None if isinstance(model, ExportedModel) else model.gives_vectors
    if is_vector:
        raise ConfigError("The model has no head: its output is features, not classes. Choose a model with a head.")
    return model


def open_by_name(name, like):
    """Opens the model for a name or path."""
    text = str(name)
    if "://" not in text and text.partition(":")[0] not in VARIANTS:
        artefact = open_artefact(Path(os.path.expanduser(name)))
        if artefact is not None:
            return describe_artefact(artefact, like)
    path = model_of(name)
    file = os.path.expanduser(path)
    opened = state_of(file)  # None for a name of the zoo

    def restore():
        if state_of(file) != opened:
            raise ConfigError(f"{path} has changed since it was opened. Open it again.")
        return zoo.load(path)

    return fold_in_place(zoo.load(path), restore)


def describe_artefact(artefact, like):
    """Makes an `ExportedModel` from the artefact's own description, or else from `like`."""
    about = artefact.about or {"preprocessing": None, "labels": None}
    if about["preprocessing"]:
        preprocessing = Preprocessing(**about["preprocessing"])
        labels = None if about["labels"] is None else tuple(about["labels"])
        probabilities = about["probabilities"]
    elif like is None:
        raise ConfigError(
            f"{artefact.path} does not say how images become its input. Name what it was exported from, or its bundle: "
            "--like runs/1, in Python like='runs/1'."
        )
    else:
        source = open_model(like)
        preprocessing, labels = source.preprocessing, source.labels
        probabilities = None if source.gives_vectors else source.config.probabilities
    shape = find_shape(artefact, preprocessing, labels)
    return ExportedModel(artefact, preprocessing, labels, shape, probabilities)


def find_shape(artefact, preprocessing, labels):
    """The shape of its outputs for a blank image; checks that it ends with the number of class names."""
    blank = np.zeros((1, *preprocessing.image_size, len(preprocessing.mean)), "float32")
    try:
        shape = artefact.run(blank).shape
    except Exception as error:  # a runtime may raise anything
        raise ExportError(f"{artefact.path} does not run on images {blank.shape[1:]}: {error}") from error
    if labels is not None and len(labels) != shape[-1]:
        raise ConfigError(f"{artefact.path} has {shape[-1]} classes, but names for {len(labels)}. Export it again.")
    return shape
