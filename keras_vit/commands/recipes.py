"""`keras-vit recipes`: the settings that training knows by name."""

import dataclasses
import json
from typing import Annotated

import typer
from rich.table import Table

from keras_vit.commands.parsing import select
from keras_vit.commands.shared import complete_recipe
from keras_vit.console import Console, list_pairs
from keras_vit.training.recipe_rows import RECIPES
from keras_vit.training.recipes import Recipe
from keras_vit.training.scaling import FAMILIES, unknown_recipe

UNITS = ((1_000_000, "M"), (1000, "k"))
LEGEND = (
    "optim: the optimizer; rate: its peak learning rate at that batch size; px: height and width of the images. "
    f"{', '.join(FAMILIES)} are names too: each stands for the row that fits the model or the data. "
    "keras-vit recipes NAME shows all of one."
)


def list_recipes(
    name: Annotated[
        str, typer.Argument(help="A recipe to show in full, or the beginning of names.", autocompletion=complete_recipe)
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Lists the recipes of finetune and pretrain: the paper's Tables 3 and 4, and those of BiT and AugReg.

    Example: keras-vit recipes finetune-pets
    """
    rows = [RECIPES[key] for key in ([name] if name in RECIPES else select(RECIPES, name))]
    if not rows:
        raise unknown_recipe(name)
    if as_json:
        print(json.dumps([dataclasses.asdict(row) for row in rows], indent=1))
    else:
        Console().print(tabulate_fields(rows[0]) if len(rows) == 1 else tabulate_recipes(rows))


def describe_length(row):
    """The length in words: "500 steps", "20k steps", "1M steps" or "30 epochs"."""
    if not row.steps:
        return f"{row.epochs:g} epochs"
    number = next((f"{row.steps // size}{unit}" for size, unit in UNITS if row.steps % size == 0), f"{row.steps:,}")
    return f"{number} steps"


def tabulate_recipes(rows: list[Recipe]) -> Table:
    """A line for each recipe, within 80 columns."""
    grid = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0), caption=LEGEND)
    grid.caption_justify = "left"
    for heading in ("name", "optim", "rate", "batch", "length", "px", "augmented"):
        grid.add_column(heading, no_wrap=True)
    for row in rows:
        sizes = f"{row.learning_rate:.2g}", f"{row.batch_size:,}", describe_length(row), str(row.image_size or "")
        grid.add_row(row.name, row.optimizer, *sizes, row.augmentation)
    return grid


def tabulate_fields(row: Recipe) -> Table:
    """A line for each field of a recipe that is set."""
    said = {field: value for field, value in dataclasses.asdict(row).items() if value not in (None, ())}
    texts = (", ".join(map(str, value)) if isinstance(value, tuple) else str(value) for value in said.values())
    return list_pairs(zip(said, texts, strict=True), style="bold")
