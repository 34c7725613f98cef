"""The public checkpoints, rows of registry.json. Imports neither TensorFlow nor Keras."""

import dataclasses
import functools
import importlib.resources
import json

from keras_vit.models.config import VARIANTS, ResNetConfig, ViTConfig
from keras_vit.models.preprocessing import Preprocessing
from keras_vit.zoo.labels import LABEL_SETS


@dataclasses.dataclass(frozen=True)
class PublicCheckpoint:
    """A file of weights on the web and what is known of it; None for what is unknown.

    Args:
        url: where the file is.
        variant: name in the table of variants, such as "ViT-B/16".
        tag: the weights' name among the variant's.
        collection: the family of files it belongs to.
        parameters: of the model that `zoo.load` returns, without the head where that is all zeros.
        num_classes: outputs of the file's head.
        valid_head: False where the head is all zeros, so that the model can only return features.
        representation_size: of the pre-logits layer, where the file has one.
        classifier: "token" or "gap" (None for a ResNet).
        resolution: height and width of the images that the weights were last trained on, or that their authors evaluate
            them on.
        crop, interpolation, mean, std: as in `keras_vit.models.Preprocessing`.
        position_interpolation: how the authors resize the position embeddings, as `keras_vit.zoo.load` names it.
        pretraining, dataset: what the weights were trained on first and last; the head predicts the last one's
            classes.
        accuracy, accuracy_source: top-1 in percent on the ImageNet validation set, and who reports it.
        bytes, bytes_source: size of the file: "exact", "listed" (the authors' listing, rounded) or "computed" (four
            bytes a parameter; the file is slightly larger).
        sha256: of the file, where somebody recorded it.
        source: where the weights are described.
        licence: of the weights.
        note: what a user should know beyond that.
    """

    url: str
    variant: str | None = None
    tag: str | None = None
    collection: str | None = None
    parameters: int | None = None
    num_classes: int | None = None
    valid_head: bool = True
    representation_size: int | None = None
    classifier: str | None = None
    resolution: int | None = None
    crop: float | None = None
    interpolation: str = "bilinear"
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    position_interpolation: str = "linear"
    pretraining: str | None = None
    dataset: str | None = None
    accuracy: float | None = None
    accuracy_source: str | None = None
    bytes: int | None = None
    bytes_source: str | None = None
    sha256: str | None = None
    source: str | None = None
    licence: str | None = None
    note: str | None = None

    @property
    def name(self) -> str:
        """What `resolve` takes: VARIANT:tag of a row, COLLECTION/stem of a file named by a grammar, else the URL."""
        if self.tag:
            return f"{self.variant}:{self.tag}"
        return f"{self.collection}/{self.url.rpartition('/')[2].removesuffix('.npz')}" if self.variant else self.url

    @property
    def labels(self) -> str | None:
        """Name of the set of classes that the head's outputs stand for, or None."""
        return self.dataset if self.valid_head and self.dataset in LABEL_SETS else None

    @property
    def preprocessing(self) -> Preprocessing | None:
        """How the authors evaluate the weights (bilinear for "area"); None where that is unknown."""
        if self.resolution is None:
            return None
        return Preprocessing((self.resolution,) * 2, self.crop, self.interpolation, tuple(self.mean), tuple(self.std))

    @property
    def config(self) -> ViTConfig | ResNetConfig | None:
        """The configuration of the model that `zoo.load` returns, or None for a file of unknown variant."""
        if self.variant is None:
            return None
        config = VARIANTS[self.variant].config
        fields = {"image_size": self.resolution, "num_classes": self.num_classes if self.valid_head else 0}
        if isinstance(config, ViTConfig):
            fields |= {"representation_size": self.representation_size, "classifier": self.classifier or "token"}
        return dataclasses.replace(config, **fields)


@functools.cache
def read_registry():
    """registry.json as it is: "collections" hold what their rows share, "defaults" the tag behind a bare variant."""
    return json.loads(importlib.resources.files("keras_vit.zoo").joinpath("registry.json").read_text("utf-8"))


@functools.cache
def checkpoints() -> tuple[PublicCheckpoint, ...]:
    """Every row of the registry as a `PublicCheckpoint`, in the order of the variants."""
    registry = read_registry()
    collections, rows = registry["collections"], registry["checkpoints"]
    return tuple(PublicCheckpoint(**{**collections[row["collection"]], **row}) for row in rows)


def default_tag(variant: str) -> str | None:
    """The tag that a bare variant stands for, or None where it has no public weights."""
    return read_registry()["defaults"].get(variant)
