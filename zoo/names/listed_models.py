"""The list of models: `keras_vit.zoo.list` and `info`, and their table. Imports neither TensorFlow nor Keras."""

import dataclasses
import fnmatch
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from keras_vit.errors import UnknownNameError
from keras_vit.models import cost
from keras_vit.models.variants import VARIANTS, variant
from keras_vit.zoo.names.registry import resolve
from keras_vit.zoo.names.rows import LOCAL, checkpoints, default_tag

if TYPE_CHECKING:
    from rich.table import Table


@dataclasses.dataclass(frozen=True)
class ListedModel:
    """A row of the list of models: a variant, or one of its checkpoints.

    Args:
        name: the name for `zoo.load`.
        variant, tag, family: "ViT-B/16"; "augreg-i21k", None for a variant; "ViT", "hybrid" or "ResNet".
        parameters, gflops: those of the loaded model at its resolution; a multiply-add is two operations.
        resolution: height and width of the images in pixels.
        num_classes, dataset: number of outputs, 0 for features, and the dataset with these classes.
        accuracy, source: top-1 in percent, and who reports it.
        measured_on: the test set of the accuracy.
        bytes, licence, url, note: facts about the file of weights, None for a variant; the url is "local" for a file
            of this package.
        default: whether the variant's bare name loads this checkpoint.
        tags: tags of all checkpoints of the variant.
    """

    name: str
    variant: str
    tag: str | None
    family: str
    parameters: int
    gflops: float
    resolution: int
    num_classes: int
    dataset: str | None = None
    accuracy: float | None = None
    source: str | None = None
    measured_on: str | None = None
    bytes: int | None = None
    licence: str | None = None
    url: str | None = None
    note: str | None = None
    default: bool = False
    tags: tuple[str, ...] = ()


def list_row(variant_name, config, parameters, **facts):
    """The row of a variant; `facts` are further fields of a `ListedModel`, for one of its checkpoints."""
    return ListedModel(
        variant=variant_name,
        family=variant(variant_name).family,
        parameters=parameters,
        gflops=float(f"{cost.count_flops(config) / 1e9:.4g}"),
        resolution=config.image_size[0],
        num_classes=config.num_classes,
        tags=tuple(row.tag for row in checkpoints() if row.variant == variant_name),
        **facts,
    )


def list_variant(name):
    return list_row(name, variant(name).config, variant(name).parameters, name=name, tag=None)


def list_checkpoint(checkpoint):
    test_set = checkpoint.record["tested_on"] if checkpoint.record else "ImageNet"
    return list_row(
        checkpoint.variant,
        checkpoint.config,
        checkpoint.parameters,
        name=checkpoint.name,
        tag=checkpoint.tag,
        dataset=checkpoint.dataset if checkpoint.valid_head else None,
        accuracy=checkpoint.accuracy,
        source=checkpoint.accuracy_source,
        measured_on=None if checkpoint.accuracy is None else test_set,
        bytes=checkpoint.bytes,
        licence=checkpoint.licence,
        url=checkpoint.url,
        note=checkpoint.note,
        default=checkpoint.tag is not None and checkpoint.tag == default_tag(checkpoint.variant),
    )


def list(
    pattern: str = "*",
    *,
    pretrained: bool | None = None,
    max_params: float | None = None,
    dataset: str | None = None,
    family: Literal["ViT", "hybrid", "ResNet"] | None = None,
) -> tuple[ListedModel, ...]:
    """The models of the zoo, in the order of the variants.

    Args:
        pattern: for the name or the variant, such as "R50*" or "*:augreg-*"; case is ignored.
        pretrained: True for checkpoints only, False for variants only, None for both.
        max_params: the most parameters that a model may have.
        dataset: the dataset whose classes the head predicts, such as "imagenet1k" or "imagenet21k".
        family: "ViT", "hybrid" or "ResNet".

    >>> [row.name for row in keras_vit.zoo.list("R50x3", pretrained=True)]
    ['R50x3:bit-s', 'R50x3:bit-m', 'R50x3:bit-m-in1k']
    """
    rows = [] if pretrained else [list_variant(name) for name in VARIANTS]
    rows += [] if pretrained is False else [list_checkpoint(row) for row in checkpoints()]
    order, pattern = [*VARIANTS], pattern.casefold()
    return tuple(
        row
        for row in sorted(rows, key=lambda row: order.index(row.variant))
        if (fnmatch.fnmatchcase(row.name.casefold(), pattern) or fnmatch.fnmatchcase(row.variant.casefold(), pattern))
        and (max_params is None or row.parameters <= max_params)
        and dataset in (None, row.dataset)
        and (family is None or row.family.casefold() == family.casefold())
    )


def info(name: str) -> ListedModel:
    """The facts about the model that `zoo.load(name)` loads: a checkpoint, or a variant without public weights.

    Raises:
        UnknownNameError: for an unknown name, and for a file, since its model is known only after loading.

    >>> keras_vit.zoo.info("ViT-B/16:augreg-i21k").bytes
    410383692
    """
    if name in VARIANTS and default_tag(name) is None:
        return list_variant(name)
    checkpoint = resolve(name)
    if isinstance(checkpoint, Path) or checkpoint.variant is None:
        raise UnknownNameError(
            f"{name} is not a name of the registry: the model in a file is known only after loading."
        )
    return list_checkpoint(checkpoint)


def as_json(rows: Iterable[ListedModel]) -> str:
    return json.dumps([dataclasses.asdict(row) for row in rows], indent=1, ensure_ascii=False)


LEGEND = (
    "bold: a variant, with random weights; *: the weights that the variant's bare name loads; px: height and width; "
    "top-1: on ImageNet, of local weights on their own test set; local: comes with this package, not fetched"
)


def format_cells(row):
    """The cells of a row: name, millions of parameters, GFLOPs, resolution, classes, top-1, MiB to fetch."""
    size = f"{row.bytes / 2**20:,.0f}" if row.bytes else ""
    return (
        row.name + (" *" if row.default else ""),
        f"{row.parameters / 1e6:,.1f}",
        f"{row.gflops:,.1f}",
        str(row.resolution),
        f"{row.num_classes:,}" if row.num_classes else "features",
        f"{row.accuracy:.2f}" if row.accuracy else "",
        LOCAL if row.url == LOCAL else size,
    )


def as_table(rows: Iterable[ListedModel]) -> "Table":
    """The rows as a table of `rich`; a star marks a variant's default weights."""
    from rich.table import Table

    grid = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0), caption=LEGEND)
    grid.caption_justify = "left"
    grid.add_column("name", overflow="fold")
    for heading in ("M params", "GFLOPs", "px", "classes", "top-1", "MiB"):
        grid.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        grid.add_row(*format_cells(row), style="bold" if row.tag is None else None)
    return grid
