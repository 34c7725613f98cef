"""`keras-vit list`: the models and checkpoints of the zoo."""

from typing import Annotated, Literal

import typer

from keras_vit.commands.completion import complete_model
from keras_vit.console import Console
from keras_vit.errors import UnknownNameError
from keras_vit.zoo.names import listed_models, other_names


def describe_no_match(pattern):
    """The sentence for a pattern that no name matches, with what a name of elsewhere is called here."""
    exact = other_names.exact_name(pattern)
    hint = f"Here it is called {exact}." if exact else "keras-vit list, alone, shows all."
    return f"No model matches {pattern!r} and the options. {hint}"


def list_models(
    pattern: Annotated[
        str,
        typer.Argument(
            help="A shell pattern for the names, such as `'R50*'` or `'*:augreg*'`.", autocompletion=complete_model
        ),
    ] = "*",
    pretrained: Annotated[bool, typer.Option("--pretrained", help="Show only models with public weights.")] = False,
    family: Annotated[
        Literal["ViT", "hybrid", "ResNet"] | None,
        typer.Option(help="Show only one family.", case_sensitive=False),
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
        raise UnknownNameError(describe_no_match(pattern))
    else:
        Console().print(listed_models.as_table(rows))
