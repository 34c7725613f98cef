"""`keras-vit list` and `info`: the models and checkpoints of the zoo, and all facts about one."""

import os
from typing import Annotated, Literal

import typer

from keras_vit.commands.parsing import complete_model
from keras_vit.console import Console, list_pairs
from keras_vit.errors import ConfigError, UnknownNameError
from keras_vit.zoo.names import listed_models, registry


def list_models(
    pattern: Annotated[
        str,
        typer.Argument(
            help="A shell pattern for the names, such as `'R50*'` or `'*:augreg*'`.", autocompletion=complete_model
        ),
    ] = "*",
    pretrained: Annotated[bool, typer.Option("--pretrained", help="Show only models with public weights.")] = False,
    family: Annotated[
        Literal["ViT", "hybrid", "ResNet"] | None, typer.Option(help="Show only one family.", case_sensitive=False)
    ] = None,
    max_params: Annotated[int | None, typer.Option(help="Show only models with at most this many parameters.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Lists the models and checkpoints of the zoo as a table.

    Example: keras-vit list 'ViT-*' --pretrained --max-params 90000000
    """
    rows = listed_models.list(pattern, pretrained=pretrained or None, family=family, max_params=max_params)
    if as_json:
        print(listed_models.as_json(rows))
    elif not rows:
        exact = registry.exact_name(pattern)
        hint = f"Here it is called {exact}." if exact else "keras-vit list, alone, shows all."
        raise UnknownNameError(f"No model matches {pattern!r} and the options. {hint}")
    else:
        Console().print(listed_models.as_table(rows))


def describe_bytes(count):
    """A number of bytes in MiB, with a decimal below 10."""
    mebibytes = count / 2**20
    return f"{mebibytes:,.{0 if mebibytes >= 10 else 1}f} MiB"


# A line of the table: its heading, and the text for a row, or None if unknown.
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
        advice = f"Try keras-vit evaluate {model}." if os.path.isdir(model) else "keras-vit list shows the names."
        raise ConfigError(f"info shows models by name, but {model} is a file or folder. {advice}")
    row = listed_models.info(model)
    if as_json:
        print(listed_models.as_json([row]))
    else:
        facts = ((heading, describe(row)) for heading, describe in FACTS)
        Console().print(list_pairs(((heading, text) for heading, text in facts if text), style="bold"))
