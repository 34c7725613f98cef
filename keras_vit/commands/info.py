"""`keras-vit info`: everything that is known about one model."""

import os
from typing import Annotated

import typer
from rich.table import Table

from keras_vit.commands.completion import complete_model
from keras_vit.console import Console
from keras_vit.errors import ConfigError
from keras_vit.zoo.names import listed_models


def show_info(
    model: Annotated[
        str,
        typer.Argument(
            help="A name that `keras-vit list` shows, with or without a tag.", autocompletion=complete_model
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Shows everything known about one model: sizes, weights, accuracy, and where the numbers come from.

    Example: keras-vit info ViT-B/16:augreg-i21k
    """
    if os.path.exists(model):
        raise ConfigError(
            f"{model} is a file or folder, and info shows models by name. For one of yours: keras-vit evaluate {model}."
        )
    row = listed_models.info(model)
    if as_json:
        print(listed_models.as_json([row]))
    else:
        Console().print(list_facts(row))


def describe_bytes(count):
    """A number of bytes in MiB, with a decimal where there are less than ten."""
    mebibytes = count / 2**20
    return f"{mebibytes:,.{0 if mebibytes >= 10 else 1}f} MiB"


# A line of the table: its heading, and the text for a row, or None where it says nothing.
FACTS = (
    ("name", lambda row: row.name),
    ("family", lambda row: row.family),
    ("parameters", lambda row: f"{row.parameters:,}"),
    ("compute", lambda row: f"{row.gflops:,g} GFLOPs for one image (a multiply-add is two)"),
    ("input", lambda row: f"{row.resolution} x {row.resolution} pixels"),
    ("classes", lambda row: f"{row.num_classes:,}" if row.num_classes else "none: the model returns features"),
    ("dataset", lambda row: row.dataset),
    ("top-1", lambda row: f"{row.accuracy:g} % on {row.measured_on}, by {row.source}" if row.accuracy else None),
    ("file", lambda row: describe_bytes(row.bytes) if row.bytes else None),
    ("licence", lambda row: row.licence),
    ("address", lambda row: row.url),
    ("note", lambda row: row.note),
    ("default", lambda row: f"{row.variant} alone loads it" if row.default else None),
    ("tags", lambda row: ", ".join(row.tags)),
)


def list_facts(row: listed_models.ListedModel) -> Table:
    """What is known of one model, a line each."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    for heading, text in ((heading, describe(row)) for heading, describe in FACTS):
        if text:
            grid.add_row(heading, text)
    return grid
