"""A checkpoint as it is read from any file, and what the caller adds to it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from keras_vit.models.config import ResNetConfig, ViTConfig
from keras_vit.models.preprocessing import Preprocessing, UnknownPreprocessing
from keras_vit.zoo.formats.tensors import Tensor


@dataclass(frozen=True)
class Hints:
    """What a caller knows of a checkpoint that its file may not say.

    Args:
        num_heads: attention heads, which hold against what is stated.
        variant_heads: those of the variant asked for, where nothing is stated.
        image_size: int or (height, width), in patches of `patch_size`, for grids that are not square.
        patch_size: of the model asked for; None for the file's.
    """

    num_heads: int | None = None
    variant_heads: int | None = None
    image_size: int | tuple[int, int] | None = None
    patch_size: int | tuple[int, int] | None = None


@dataclass(frozen=True)
class OpenCheckpoint:
    """Everything a checkpoint knows: tensors under official names, and the model they came from.

    Args:
        path: of its file.
        config: of the model.
        tensors: {official name: Tensor}, none of them read.
        preprocessing: of the images; None stands for the paper's.
        labels: names of the classes, or None.
        trainable: which parts of the model train, as the argument of `Classifier`.
    """

    path: Path
    config: ViTConfig | ResNetConfig
    tensors: Mapping[str, Tensor]
    preprocessing: Preprocessing | UnknownPreprocessing | None = None
    labels: tuple[str, ...] | None = None
    trainable: bool | Mapping[str, bool] = True
