"""The nearest of many vectors, exactly, and the page that shows the images."""

import html
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit import pages
from keras_vit.errors import ConfigError, ImageError
from keras_vit.inference.listing import read_from_anywhere
from keras_vit.inference.vector_files import Vectors
from keras_vit.models.vectors import unit_vectors

ROWS = 8192  # vectors that are compared at a time
STYLE = "display: flex; flex-wrap: wrap; gap: 1rem"


def nearest(vectors: Any, queries: Any, count: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """The vectors with the largest cosines to each query: (their numbers (m, count), the cosines (m, count)).

    All are compared, in blocks. An index for approximate search would first compare each of them with its many centres,
    which pays only for many queries. Of equal cosines the first is first.

    Args:
        vectors: (n, d), of any lengths, as of `read_vectors`.
        queries: (m, d).
        count: of the nearest; n where that is less.

    Raises:
        ConfigError: for vectors of another width.

    >>> nearest(np.eye(3), [[1, 0.5, 0]], count=2)[0].tolist()
    [[0, 1]]
    """
    queries = np.asarray(queries, "float32")
    if np.ndim(vectors) != 2 or queries.ndim != 2 or np.shape(vectors)[1] != queries.shape[1] or count < 1:
        raise ConfigError(
            f"nearest takes vectors (n, d), queries (m, d) of the same model, and a count from 1. Received: the shapes "
            f"{np.shape(vectors)} and {queries.shape}, and count={count}."
        )
    queries = unit_vectors(queries)
    numbers, cosines = np.empty((len(queries), 0), int), np.empty((len(queries), 0), "float32")
    for start in range(0, len(vectors), ROWS):
        block = unit_vectors(np.asarray(vectors[start : start + ROWS], "float32"))
        numbers = np.hstack([numbers, np.tile(np.arange(start, start + len(block)), (len(queries), 1))])
        cosines = np.hstack([cosines, queries @ block.T])
        best = np.argsort(-cosines, axis=1, kind="stable")[:, :count]
        numbers, cosines = (np.take_along_axis(x, best, axis=1) for x in (numbers, cosines))
    return numbers, cosines


def draw_image(place, caption):
    """A picture and what is said of it, as HTML; the caption alone where the picture cannot be read any more."""
    try:
        return pages.draw_thumbnail(read_from_anywhere(place), caption)
    except ImageError:
        return f"(cannot be read now)<br>{html.escape(caption)}"


def draw_nearest(found: Vectors, queries: Sequence[str], numbers: np.ndarray, cosines: np.ndarray) -> str:
    """The page of what `nearest` gave for pictures: each query, and below it the nearest ones with their cosines."""
    parts = []
    for query, row, values in zip(queries, numbers, cosines, strict=True):
        captions = [f"{value:.3f} {found.paths[i]}" for i, value in zip(row, values, strict=True)]
        cells = (draw_image(str(found.paths[i]), caption) for i, caption in zip(row, captions, strict=True))
        style = "margin: 0; width: 11rem; overflow-wrap: anywhere"
        near = "".join(f'<figure style="{style}">{cell}</figure>' for cell in cells)
        parts += [f"<figure>{draw_image(query, query)}</figure>", f'<div style="{STYLE}">{near}</div>']
    origin = found.origin
    head = f"Cosines of the vector {origin.vector} of {origin.model}, among {len(found.paths):,} images."
    return pages.fill_page("Nearest images", f"<p>{html.escape(head)}</p>" + "\n".join(parts))
