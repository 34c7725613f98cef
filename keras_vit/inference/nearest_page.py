"""Draws a page of the images whose vectors are nearest."""

import html
from collections.abc import Sequence

import numpy as np

from keras_vit import pages
from keras_vit.errors import ImageError
from keras_vit.inference.listing import read_from_anywhere
from keras_vit.inference.vector_files import Origin

STYLE = "display: flex; flex-wrap: wrap; gap: 1rem"


def draw_image(place, caption):
    """An image and its caption as HTML; only the caption if the image cannot be read any more."""
    try:
        return pages.draw_thumbnail(read_from_anywhere(place), caption)
    except ImageError:
        return f"(cannot be read now)<br>{html.escape(caption)}"


def draw_nearest(
    paths: Sequence[str], origin: Origin, queries: Sequence[str], numbers: np.ndarray, cosines: np.ndarray
) -> str:
    """The page of the results of `nearest` for images: each query, and below it the nearest with their cosines.

    `paths` and `origin` are those of the `Vectors`; `numbers` and `cosines` (m, count) are what `nearest` returned for
    the m queries.
    """
    parts = []
    for query, row, values in zip(queries, numbers, cosines, strict=True):
        captions = [f"{value:.3f} {paths[i]}" for i, value in zip(row, values, strict=True)]
        cells = (draw_image(str(paths[i]), caption) for i, caption in zip(row, captions, strict=True))
        style = "margin: 0; width: 11rem; overflow-wrap: anywhere"
        near = "".join(f'<figure style="{style}">{cell}</figure>' for cell in cells)
        parts += [f"<figure>{draw_image(query, query)}</figure>", f'<div style="{STYLE}">{near}</div>']
    head = f"Cosines of the vector {origin.vector} of {origin.model}, among {len(paths):,} images."
    return pages.fill_page("Nearest images", f"<p>{html.escape(head)}</p>" + "\n".join(parts))
