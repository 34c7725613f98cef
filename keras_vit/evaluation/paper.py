"""The paper's printed numbers as rows, each under the table that prints it."""

import functools
import importlib.resources
import json

from keras_vit.errors import UnknownNameError, describe_unknown


@functools.cache
def tables() -> dict:
    """{table: {"title", "columns", "rows"}}, as printed; None where the paper prints a dash.

    Tables 5 and 6 disagree on ViT-H/14 (ImageNet 88.04 and 88.08), and Table 6 prints 859 exaFLOPs for 7 epochs of
    R50x1+ViT-L/16, where half of its 14 epochs is 834.
    """
    return json.loads(importlib.resources.files("keras_vit.evaluation").joinpath("paper.json").read_text("utf-8"))


def published(table: int | str) -> list[dict]:
    """The rows of one of the paper's tables, {column: value}.

    Args:
        table: 1, 2, 5, 6, 7, 8 or 9; "Figure 2", the means of VTAB's groups; "B.1.2", masked patch prediction; "D.9",
            ObjectNet.

    Raises:
        UnknownNameError: for another.

    >>> [row["exaFLOPs"] for row in published(6) if row["model"] == "ViT-L/16"]
    [783, 1567]
    """
    known = tables()
    if str(table) not in known:
        raise UnknownNameError(describe_unknown("table of numbers", str(table), known))
    found = known[str(table)]
    return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]
