"""`keras-vit info`: everything that is known about one model."""

import dataclasses
from typing import Annotated

import typer
from rich.table import Table

from keras_vit.console import Console
from keras_vit.zoo.names import listed_models


def show_info(
    name: Annotated[str, typer.Argument(help="A name that `keras-vit list` shows, with or without a tag.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Shows everything known about one model: sizes, weights, accuracy, and where the numbers come from.

    Example: keras-vit info ViT-B/16:augreg-i21k
    """
    row = listed_models.info(name)
    if as_json:
        print(listed_models.as_json([row]))
    else:
        Console().print(list_facts(row))


def list_facts(row):
    """The fields of one model that are known, a line each."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    for field, value in dataclasses.asdict(row).items():
        if value not in (None, (), ""):
            grid.add_row(field, format_value(value))
    return grid


def format_value(value):
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(value)
    return f"{value:,}" if isinstance(value, int | float) else str(value)
