"""Makes pages and figures in one style.

A page is HTML that needs no other file and no network. A figure has a light style; a PNG stays white in the dark mode.
"""

import base64
import contextlib
import html
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, LINE = "#1f2328", "#b9b8b3"
COLOURS = ("#0b6e63", "#d1752b", "#5567b9", "#b0445f", "#8a8d2c", "#6b7077")
SHADES = "BuGn"  # colours of shares from 0 to 1: nearly white to dark green
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

WIDTH = 192  # pixels of a small picture

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --ink: #1f2328; --paper: #f6f5f1; --card: #fff; --line: #d9d8d3; --bar: #cfe8e3 }}
@media (prefers-color-scheme: dark) {{
:root {{ --ink: #e8e6e1; --paper: #16181b; --card: #202327; --line: #3a3f45; --bar: #1f5a50 }}
}}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem }}
body {{ color: var(--ink); background: var(--paper) }}
h1 {{ font-size: 1.8rem; line-height: 1.2; overflow-wrap: anywhere }}
section {{ margin: 3rem 0 }}
section p {{ max-width: 44rem }}
img {{ max-width: 100%; height: auto; border-radius: .4rem }}
figure {{ margin: 1rem 0 }}
.paper {{ background: #fff; border-radius: .6rem; padding: .6rem; text-align: center }}
.cards {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); gap: .8rem; padding: 0 }}
.cards > li {{ list-style: none; background: var(--card); border: 1px solid var(--line); border-radius: .6rem }}
.cards > li {{ padding: .5rem; font-size: .85rem; overflow-wrap: anywhere }}
.cards img {{ width: 100% }}
.answers {{ margin: .3rem 0 0; padding: 0 }}
.answers li {{ display: flex; justify-content: space-between; margin-top: .15rem; padding: 0 .3rem }}
.answers li {{ background: linear-gradient(var(--bar), var(--bar)) no-repeat 0 / var(--share) 100% }}
table {{ border-collapse: collapse }}
td, th {{ padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top; overflow-wrap: anywhere }}
</style>
<h1>{title}</h1>
{body}
</html>
"""


def fill_page(title: str, body: str) -> str:
    """The page with a title, given as text, and a body, given as HTML."""
    return PAGE.format(title=html.escape(title), body=body)


def embed_image(content: bytes, kind: str, text: str) -> str:
    """An <img> with embedded bytes, of the kind "png" or "jpeg"; `text` describes it."""
    data = base64.b64encode(content).decode()
    return f'<img alt="{html.escape(text)}" src="data:image/{kind};base64,{data}">'


def draw_thumbnail(image: Any, name: str) -> str:
    """A thumbnail of an image, uint8 (h, w, 3), enlarged if it is tiny, with its name, as HTML."""
    from PIL import Image

    small, file = Image.fromarray(image), io.BytesIO()
    small.thumbnail((WIDTH, WIDTH))
    if (times := WIDTH // max(small.size)) > 1:
        small = small.resize((times * small.width, times * small.height), Image.Resampling.NEAREST)
    small.save(file, "JPEG", quality=85)
    return f"{embed_image(file.getvalue(), 'jpeg', name)}<br>{html.escape(name)}"


def list_answers(answers: Iterable[tuple[str, float]]) -> str:
    """Classes and their probabilities, each with a bar, as HTML."""
    rows = (
        f'<li style="--share: {share:.1%}"><span>{html.escape(name)}</span> <b>{share:.0%}</b></li>'
        for name, share in answers
    )
    return f'<ol class="answers">{"".join(rows)}</ol>'


def lay_out_cards(cards: Iterable[str]) -> str:
    """Arranges cards, given as HTML, in rows that fit the width."""
    return f'<ul class="cards">{"".join(f"<li>{card}</li>" for card in cards)}</ul>'


def tabulate(rows: Iterable[Sequence[str]]) -> str:
    """Makes a table from rows of cells, given as HTML; the first row is the heading."""
    lines = (
        "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in row) + "</tr>"
        for tag, row in (("td" if i else "th", row) for i, row in enumerate(rows))
    )
    return f"<table>{''.join(lines)}</table>"


@contextlib.contextmanager
def write_figure(path: str | os.PathLike, width: float, height: float) -> "Iterator[Figure]":
    """Yields a figure of this size in inches; writes it as a PNG when the context ends without an error."""
    import matplotlib
    from cycler import cycler
    from matplotlib.figure import Figure  # not pyplot: it keeps figures and may need a display

    style: Any = {**STYLE, "axes.prop_cycle": cycler("color", COLOURS)}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        figure.savefig(path, format="png")
