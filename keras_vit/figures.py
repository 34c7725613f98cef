"""Figures in one style, that of the HTML pages in the light; a PNG keeps its white paper in the dark."""

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, LINE = "#1f2328", "#b9b8b3"
COLOURS = ("#0b6e63", "#d1752b", "#5567b9", "#b0445f", "#8a8d2c", "#6b7077")
SHADES = "BuGn"  # of shares from 0 to 1, from nearly white to dark green
STYLE: dict[str, Any] = {
    "figure.dpi": 110,
    "savefig.dpi": 110,
    "font.size": 9,
    "axes.titlesize": 10,
    "figure.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": LINE,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.alpha": 0.3,
    "legend.frameon": False,
}


@contextlib.contextmanager
def write_figure(path: str | os.PathLike, width: float, height: float) -> "Iterator[Figure]":
    """A figure of so many inches to draw on; it is a PNG at the path when the context ends without an error."""
    import matplotlib
    from cycler import cycler
    from matplotlib.figure import Figure  # not pyplot, which keeps figures and may ask for a display

    style: Any = {**STYLE, "axes.prop_cycle": cycler("color", COLOURS)}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        figure.savefig(path, format="png")
