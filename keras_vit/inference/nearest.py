"""Finds the nearest of many vectors, and draws a page of their images."""

import html
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_vit import pages
from keras_vit.errors import ConfigError, ImageError
from keras_vit.inference.listing import read_from_anywhere
from keras_vit.inference.vector_files import Origin
from keras_vit.inference.vector_search import Found, Kept, compare_all, open_searchable, unit_rows

STYLE = "display: flex; flex-wrap: wrap; gap: 1rem"


def nearest(vectors: Any, queries: Any, count: int = 12, exact: bool = False) -> Found:
    """Finds the vectors with the largest cosines to each query: (their numbers (m, count), the cosines (m, count)).

    Faiss compares all vectors, in blocks. For a file of more than a million it searches an index instead, that finds
    at least 95 % of the 12 nearest of stored vectors. The first call makes the index in some minutes, and keeps it
    beside the file, with ".index" after the name. It is made again if the file has changed. Equal cosines are in the
    order of their numbers; which of them are left out after `count` is not defined.

    Args:
        vectors: (n, d), of any lengths, or the path of a file as for `read_vectors`.
        queries: (m, d).
        count: number of nearest vectors; at most n are found.
        exact: whether to compare all vectors of a file of any size.

    Raises:
        ConfigError: for vectors of another width or that are not finite, or an index that cannot be written.

    >>> nearest(np.eye(3), [[1, 0.5, 0]], count=2)[0].tolist()
    [[0, 1]]
    """
    searched = open_searchable(vectors, exact) if isinstance(vectors, str | os.PathLike) else vectors
    queries = np.asarray(queries, "float32")
    shape = searched.shape if isinstance(searched, Kept) else np.shape(searched)
    if len(shape) != 2 or queries.ndim != 2 or shape[1] != queries.shape[1] or count < 1:
        raise ConfigError(
            f"nearest takes vectors (n, d), queries (m, d) of the same model, and a count from 1. Received: the shapes "
            f"{shape} and {queries.shape}, and count={count}."
        )
    queries = unit_rows(queries, slice(None))
    return searched.search(queries, count) if isinstance(searched, Kept) else compare_all(searched, queries, count)


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

    `paths` and `origin` are those of the `Vectors`.
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
