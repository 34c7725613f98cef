"""The 12 nearest among many vectors: by the index, beside comparing all that are in memory or in the file."""

from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.subjects import Case, Contestant, Settings
from keras_vit import inference
from keras_vit.evaluation.device.measuring import seconds_per_call
from keras_vit.inference.vector_files import Origin, write_vectors

COUNT, WIDTH, CENTRES = 1_200_000, 384, 2_000
BLOCK = 10_000  # vectors to draw at a time


def draw(count: int, seed: int):
    """Yields blocks (m, WIDTH) of `count` vectors around CENTRES points, which are the same for every seed."""
    centres = np.random.default_rng(0).standard_normal((CENTRES, WIDTH), "float32")
    rng = np.random.default_rng(seed)
    for start in range(0, count, BLOCK):
        size = min(BLOCK, count - start)
        yield centres[rng.integers(CENTRES, size=size)] + rng.standard_normal((size, WIDTH), "float32")


def write_file(path: Path) -> Path:
    """Writes a file of COUNT vectors, unless it is there."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        columns = {name: [""] * COUNT for name in ("paths", "labels", "digests")}
        write_vectors(path, draw(COUNT, 1), (COUNT, WIDTH), columns, Origin("none", "0" * 64, "features", False))
    return path


def enter_search(case: Case, settings: Settings):
    """The first contestant makes the index at its first call, which is not timed, before the others take memory."""
    path, (queries,) = write_file(settings.files / f"{COUNT} vectors.npz"), draw(case.batch, 2)
    over = "all compared", "all read and compared"
    vectors = {
        "index": lambda: path,
        "all compared": lambda: inference.read_vectors(path).vectors,
        "all read and compared": lambda: path,
    }

    def enter(name):
        search = partial(inference.nearest, vectors[name](), queries, exact=name != "index")
        return Contestant(partial(seconds_per_call, search), case.batch, over if name == "index" else ())

    return {name: partial(enter, name) for name in vectors}
