"""Search by Faiss, over all vectors or, for a large file, by an index that is kept beside it; a page of the nearest.

The file of an index is in Faiss' format; its last bytes name its file of vectors, and the share it finds.
"""

import html
import json
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_vit import pages
from keras_vit.errors import ConfigError, ImageError
from keras_vit.files import describe_refusal, find_misfit, open_regular, write_whole
from keras_vit.inference.listing import read_from_anywhere, state_of
from keras_vit.inference.vector_files import Origin, read_columns

MOST = 1_000_000  # vectors; for a file of more, an index is made
ROWS = 8192  # vectors to compare at a time
NEAREST = 12  # the index finds the share `RECALL` of so many nearest of each of `QUERIES` vectors
QUERIES = 100
RECALL = 0.95
PER_LIST = 40  # vectors to compute a list's centre from
ABOUT = 512  # bytes at the end of an index
FIELDS: Any = {"keras_vit": "an index of vectors", "of": [int], "shape": [int], "found": float}
ADVICE = "Compare all vectors instead: --exact, or exact=True in Python."

Found = tuple[np.ndarray, np.ndarray]  # numbers of vectors and their cosines, (m, count)


def unit_rows(vectors, rows):
    """Copies rows, float32 (n, d), divided by their lengths; zeros stay. Refuses vectors that are not finite."""
    import faiss

    block = np.array(vectors[rows], "float32", order="C")
    if not np.isfinite(np.einsum("ij,ij->i", block, block)).all():
        raise ConfigError("Vectors and queries must be finite. Received: NaN, infinity, or a length beyond float32.")
    faiss.normalize_L2(block)
    return block


def sort_found(numbers, cosines):
    """Both in the order of falling cosines; equal ones in the order of their numbers."""
    best = np.lexsort((numbers, -cosines))
    return np.take_along_axis(numbers, best, axis=1), np.take_along_axis(cosines, best, axis=1)


def compare_all(vectors: np.ndarray, queries: np.ndarray, count: int) -> Found:
    """Finds the largest cosines of `vectors` (n, d) to each of `queries` (m, d), unit vectors; in blocks."""
    import faiss

    numbers, cosines = np.empty((len(queries), 0), int), np.empty((len(queries), 0), "float32")
    for start in range(0, len(vectors), ROWS):
        block = unit_rows(vectors, slice(start, start + ROWS))
        values, rows = faiss.knn(queries, block, min(count, len(block)), metric=faiss.METRIC_INNER_PRODUCT)
        numbers, cosines = np.hstack([numbers, rows + start]), np.hstack([cosines, values])
        numbers, cosines = (x[:, :count] for x in sort_found(numbers, cosines))
    return numbers, cosines


def search_lists(index, queries, count, lists):
    """Searches the `lists` nearest lists of the index, or more if these hold less than `count` vectors."""
    import faiss

    count = min(count, index.ntotal)
    while True:
        few = faiss.SearchParametersIVF()
        few.nprobe = min(lists, index.nlist)
        cosines, numbers = index.search(queries, count, params=few)
        if numbers.min(initial=0) >= 0 or lists >= index.nlist:
            return sort_found(numbers, cosines)
        lists *= 2


def choose_lists(index, vectors, rows):
    """(number of lists to search, the share found then): the fewest lists, a power of 2, that reach `RECALL`.

    `rows` are the numbers of vectors that serve as queries; that each finds itself does not count.
    """
    queries = unit_rows(vectors, rows)
    _, best = compare_all(vectors, queries, NEAREST + 1)
    lists = 1
    while True:
        _, cosines = search_lists(index, queries, NEAREST + 1, lists)
        right = (cosines >= best[:, -1:] - 1e-6).sum(axis=1) - 1
        found = float(right.mean() / (best.shape[1] - 1))
        if found >= RECALL or lists >= index.nlist:
            return min(lists, index.nlist), found
        lists *= 2


def make_index(vectors: np.ndarray, tell: Callable[[int, int], object]) -> tuple[Any, float]:
    """Makes an inverted file of unit vectors; returns it and the share of stored vectors' nearest that it finds."""
    import faiss

    count, width = vectors.shape
    lists = max(1, 2 * math.isqrt(count))
    drawn = np.random.default_rng(0).permutation(count)[: QUERIES + PER_LIST * lists]
    index: Any = faiss.index_factory(width, f"IVF{lists},Flat", faiss.METRIC_INNER_PRODUCT)
    index.train(unit_rows(vectors, np.sort(drawn[-PER_LIST * lists :])))
    for start in range(0, count, ROWS):
        index.add(unit_rows(vectors, slice(start, start + ROWS)))
        tell(index.ntotal, count)
    index.nprobe, found = choose_lists(index, vectors, drawn[:QUERIES])
    return index, found


class Kept(NamedTuple):
    """An index from a file; its lists stay on the disk until searched."""

    index: Any
    found: float  # share of stored vectors' nearest that it finds

    def describe(self) -> str:
        return f"{int(100 * self.found)} % of the {NEAREST} nearest of {QUERIES} sample vectors are found"

    def search(self, queries: np.ndarray, count: int) -> Found:
        return search_lists(self.index, queries, count, self.index.nprobe)


def describe_index(state, shape, found):
    """The last bytes of an index."""
    return json.dumps({**FIELDS, "of": state, "shape": list(shape), "found": found}).encode().rjust(ABOUT)


def read_about(path):
    """Reads the last bytes of an index; None if there is no file, or it is no index."""
    try:
        with open_regular(path) as file:
            file.seek(-ABOUT, os.SEEK_END)
            about = json.loads(file.read())
        return None if find_misfit(about, FIELDS) else about
    except (OSError, ValueError):
        return None


def read_index(path, state):
    """Reads an index; None if it is damaged, or was not made for the file of vectors in its present state."""
    import faiss

    about = read_about(path)
    if about is None or about["of"] != state:
        return None
    try:
        index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP)
    except RuntimeError:
        return None
    return Kept(index, about["found"]) if [index.ntotal, index.d] == about["shape"] else None


def write_index(path, vectors, state, tell):
    """Makes an index, and writes it completely or not at all; replaces nothing but an index."""
    import faiss

    if os.path.lexists(path) and read_about(path) is None:
        raise ConfigError(f"{path} is not an index of this package, so it is not replaced. Move it away. {ADVICE}")
    try:
        with write_whole(path) as unfinished:
            index, found = make_index(vectors, tell)
            faiss.write_index(index, str(unfinished))
            with open(unfinished, "ab") as file:
                file.write(describe_index(state, vectors.shape, found))
    except OSError as error:
        raise ConfigError(f"{describe_refusal(error)} {ADVICE}") from error
    except RuntimeError as error:  # Faiss raises it for a full disk
        raise ConfigError(f"The index {path} cannot be written: {error!s:.200}. {ADVICE}") from error


def open_searchable(
    file: str | os.PathLike, exact: bool = False, tell: Callable[[int, int], object] = lambda done, total: None
) -> np.ndarray | Kept:
    """Opens the vectors in a file for a search or, for more than `MOST` and unless `exact`, their index.

    A missing or outdated index is made and kept as `file`.index; `tell` gets the numbers of its vectors and of all.
    """
    path, state = f"{os.path.expanduser(file)}.index", state_of(file)
    if not exact and (kept := read_index(path, state)):
        return kept
    vectors = read_columns(file, ("vectors",))[0]["vectors"]
    if exact or len(vectors) <= MOST:
        return vectors
    write_index(path, vectors, state, tell)
    return read_index(path, state) or vectors


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
    shape = (searched.index.ntotal, searched.index.d) if isinstance(searched, Kept) else np.shape(searched)
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

    `paths` and `origin` are those of the `Vectors`; `numbers` and `cosines` (m, count) are what `nearest` returned for
    the m queries.
    """
    parts = []
    for query, row, values in zip(queries, numbers, cosines, strict=True):
        captions = [f"{value:.3f} {paths[i]}" for i, value in zip(row, values, strict=True)]
        cards = (draw_image(str(paths[i]), caption) for i, caption in zip(row, captions, strict=True))
        parts += [f"<figure>{draw_image(query, query)}</figure>", pages.lay_out_cards(cards)]
    head = f"Cosines of the vector {origin.vector} of {origin.model}, among {len(paths):,} images."
    return pages.fill_page("Nearest images", f"<p>{html.escape(head)}</p>" + "\n".join(parts))
