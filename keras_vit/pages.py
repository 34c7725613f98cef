"""Self-contained HTML pages, which need no other file and no network: the frame, tables and pictures."""

import base64
import html
from collections.abc import Iterable, Sequence

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }}
body {{ color: #222; background: #fff }}
img {{ max-width: 100%; height: auto }}
figure {{ margin: 2rem 0 }}
table {{ border-collapse: collapse }}
td, th {{ padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: top; overflow-wrap: anywhere }}
</style>
<h1>{title}</h1>
{body}
</html>
"""


def fill_page(title: str, body: str) -> str:
    """The page of a title, as text, and a body, as HTML."""
    return PAGE.format(title=html.escape(title), body=body)


def embed_image(content: bytes, kind: str, text: str) -> str:
    """An <img> that holds its own bytes, of the kind "png" or "jpeg"; `text` says what it shows."""
    data = base64.b64encode(content).decode()
    return f'<img alt="{html.escape(text)}" src="data:image/{kind};base64,{data}">'


def tabulate(rows: Iterable[Sequence[str]]) -> str:
    """Rows of cells, as HTML, as a table; the first row is the heading."""
    lines = (
        "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in row) + "</tr>"
        for tag, row in (("td" if i else "th", row) for i, row in enumerate(rows))
    )
    return f"<table>{''.join(lines)}</table>"
