"""Vectors of images: `embed` for some, `embed_each` for more than memory holds, `embed_files` for a file of vectors.

`embed_files` resumes after a kill. It identifies vectors by the SHA-256 of the image file. Those in the file that is
being replaced, or in the folder beside it with the parts of a killed process, are not computed again.
"""

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_vit.errors import COUNT, ConfigError, ImageError, require_within, without_secrets
from keras_vit.files import local_path, make_folder, sha256, write_whole
from keras_vit.images.pillow import describe_missing
from keras_vit.inference.classifiers import ExportedModel, open_model
from keras_vit.inference.listing import list_images, means_several
from keras_vit.inference.predicting import BATCH_SIZE, ask, compute_ahead, raise_error
from keras_vit.inference.vector_files import BLOCK, FIELDS, Origin, read_vectors, require_format, write_vectors
from keras_vit.models.config import Vector
from keras_vit.models.vectors import choose_vector, unit_vectors, vector_reader, vector_width
from keras_vit.owned import OwnFolder, files_in, lock

if TYPE_CHECKING:
    from keras_vit.images.pixels import Picture
    from keras_vit.inference.predicting import Asked

PART = 1024  # images whose vectors `embed_files` writes together


def embed(
    model: "Asked",
    images: "Picture | list[Picture] | tuple[Picture, ...]",
    vector: Vector | None = None,
    normalize: bool = False,
    batch_size: int = BATCH_SIZE,
) -> np.ndarray:
    """A vector for each image: float32 (n, d), one row for a single image.

    Args:
        model: as for `predict`, with or without a head. Load it once if you call often: `inference.open_model(name)`.
        images: as for `predict`: an image of any kind, a list of them, a folder or a pattern.
        vector: the kind of vector.
            "output" is the model's own output: for DINO and SigLIP, which have no head, their vector; for CLIP, the
            vector after its projection, comparable with those of texts. Exported classifiers have only this one.
            "features" is the input of the head, for CLIP before the projection.
            "token", "gap" and "token+gap" are the class token, the mean of the patches, and both joined, after the last
            norm of a `VisionTransformer`.
            None is "output" if that is a vector, and "features" for a classifier.
        normalize: whether to divide each vector by its length, so that products of two are cosines.
        batch_size: images at a time; affects only the time.

    Raises:
        ImageError: when an image cannot be read.
        ConfigError: for a vector that the model does not have.
        KerasVitError: when the model cannot be loaded.

    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None)
    >>> embed(model, [np.zeros((40, 50, 3), "uint8")] * 2, vector="token+gap").shape
    (2, 128)
    """
    asked: Any = images if isinstance(images, list | tuple) else [images]
    if means_several(images):
        asked = list_images(asked)
    model = open_model(model)
    vectors = [found for _, found in embed_each(model, asked, vector, normalize, batch_size)]
    return np.stack(vectors) if vectors else np.empty((0, vector_width(model, vector)), "float32")


def embed_each(
    model: "Asked",
    images: "Iterable[Picture]",
    vector: Vector | None = None,
    normalize: bool = False,
    batch_size: int = BATCH_SIZE,
    skip: Callable[["Picture", ImageError], object] | None = None,
) -> "Iterator[tuple[Picture, np.ndarray]]":
    """Yields each image with its vector (d,), for any number of images, in order; memory holds only a few batches.

    Args:
        model, vector, normalize, batch_size: as for `embed`.
        images, skip: as for `predict_each`.

    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None)
    >>> [vector.shape for _, vector in embed_each(model, [np.zeros((8, 8, 3), "uint8")])]
    [(64,)]
    """
    require_within(COUNT, batch_size=batch_size)
    model = open_model(model)
    answers = ask(model, vector_reader(model, vector), images, batch_size, skip)
    scale = unit_vectors if normalize else np.asarray
    return (pair for batch, vectors in answers for pair in zip(batch, scale(vectors), strict=True))


def digest_of_model(model: Any) -> str:
    """The SHA-256 of all that affects a model's vectors: weights, preprocessing, and options other than the defaults.

    Names do not count. For an exported model it is the SHA-256 of its files.
    """
    if isinstance(model, ExportedModel):
        path = model.path
        digests = [sha256(path / name) for name in files_in(path)] if path.is_dir() else [sha256(path)]
        return hashlib.sha256("".join(digests).encode()).hexdigest()
    model = getattr(model, "folded_from", model)
    options = {
        field.name: value
        for field in dataclasses.fields(model.config)
        if (value := getattr(model.config, field.name)) != field.default
    }
    facts = [options, model.get_config()["preprocessing"], model.dtype_policy.name]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=dataclasses.asdict).encode())
    for weight in model.get_weights():
        digest.update(f"{weight.dtype}{weight.shape}".encode() + np.ascontiguousarray(weight).tobytes())
    return digest.hexdigest()


def require_alike(what, found, origin, advice):
    """Refuses vectors that were not made in the same way; the path of the model may differ."""
    if dataclasses.replace(found, model="") != dataclasses.replace(origin, model=""):
        kind = f"{found.vector} of {found.model}{', normalized' if found.normalized else ''}"
        raise ConfigError(f"{what} of another model or kind, {kind}{advice}")


class Parts(OwnFolder):
    """The folder of results so far, one file per part: rows of (digest, vector), mapped into memory."""

    record, writer, error = "embedding.json", "keras-vit embed", ConfigError
    names = re.compile(r"part-\d{6}\.npy", re.ASCII)
    fields = {"origin": FIELDS}

    def __init__(self, path: Path, origin: Origin):
        super().__init__(path)
        self.facts = {"origin": dataclasses.asdict(origin)}
        if found := self.read():
            begun = Origin(**{name: found["origin"][name] for name in FIELDS})
            advice = ". Finish those first, or delete that folder."
            require_alike(f"{path} has unfinished vectors", begun, origin, advice)
        self.require_own(self.digests())

    def vectors_in(self, names: Iterable[str]) -> dict[str, np.ndarray]:
        """{digest: vector} from parts; the vectors stay on the disk until they are read."""
        found = {}
        for name in names:
            rows = np.asarray(np.load(self.path / name, mmap_mode="r"))
            found.update(zip(rows["digest"].astype(str).tolist(), rows["vector"], strict=True))
        return found

    def add(self, vectors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Writes another part, and returns it mapped from the disk."""
        rows = np.empty(len(vectors), [("digest", "S64"), ("vector", "<f4", next(iter(vectors.values())).shape)])
        rows["digest"], rows["vector"] = list(vectors), list(vectors.values())
        self.path.mkdir(exist_ok=True)
        name = f"part-{len(self.digests()):06}.npy"
        np.save(encoded := io.BytesIO(), rows)  # to a file numpy's error names neither the file nor the reason
        with self.writing(name) as path:
            path.write_bytes(encoded.getbuffer())
        return self.vectors_in([name])

    def clear(self) -> None:
        """Removes all parts, and the folder."""
        if self.read() is None:
            return
        self.remove(self.digests())
        (self.path / self.record).unlink()
        with contextlib.suppress(OSError):  # there are foreign files
            self.path.rmdir()


def list_labelled(places):
    """{path: label} of the images in folders, patterns and files; a label is the subfolder of the given folder."""
    found, places = {}, [places] if isinstance(places, str | os.PathLike) else places
    for place in map(os.path.expanduser, places):
        for path in list_images([place]):
            label = os.path.relpath(os.path.dirname(path), place) if os.path.isdir(place) else ""
            found.setdefault(path, "" if label == os.curdir else label)
    return found


def read_known(out, origin):
    """{digest: vector} from the file that is to be replaced; refuses one with something else."""
    if not os.path.lexists(out):
        return {}
    old = read_vectors(out)
    require_alike(f"{out} has vectors", old.origin, origin, ", so it stays. Choose another --out, or delete it.")
    return dict(zip(map(str, old.digests), old.vectors, strict=True))


def digest_files(paths, skip):
    """{path: SHA-256} of the readable files."""

    def digest(path):
        try:
            return path, sha256(path)
        except FileNotFoundError:
            raise ImageError(describe_missing(path)) from None
        except OSError as error:
            raise ImageError(f"{path} cannot be read as an image: {error.strerror or error}.") from error

    return dict(compute_ahead(digest, paths, PART, skip))


def compute(model, paths, known, parts, skip, tell, **arguments):
    """Computes missing vectors and adds them to `known` and `parts`; returns [(path, digest)] of readable images."""
    rows, done, waiting = [], 0, iter(paths)
    while some := list(islice(waiting, PART)):
        digests = digest_files(some, skip)
        first = {digest: path for path, digest in reversed(digests.items()) if digest not in known}
        new = dict.fromkeys(path for path, digest in digests.items() if first.get(digest) == path)
        if found := {digests[path]: x for path, x in embed_each(model, new, skip=skip, **arguments)}:
            known.update(parts.add(found))
        copies = [path for path, digest in digests.items() if digest not in known and path not in new]
        for _ in embed_each(model, copies, skip=skip, **arguments):
            pass  # unreadable as the first ones were: `skip` names each
        rows += [(path, digest) for path, digest in digests.items() if digest in known]
        done += len(some)
        tell(done, len(paths))
    return rows


def embed_files(
    model: "Asked",
    places: Iterable[str],
    out: str | os.PathLike,
    vector: Vector | None = None,
    normalize: bool = False,
    batch_size: int = BATCH_SIZE,
    like: Any = None,
    skip: Callable[[str, ImageError], object] | None = None,
    tell: Callable[[int, int], object] | None = None,
) -> int:
    """Writes the vectors of image files, for `read_vectors`; returns their number.

    Memory holds a few batches, and the path and digest of each file. A killed call leaves its results in a folder
    beside `out`. The next call continues from there, and its file has the same bytes as without the kill. Vectors in an
    existing `out` are reused for unchanged image files; those of missing images are dropped.

    Args:
        model, vector, normalize, batch_size: as for `embed`.
        places: folders, patterns and files.
        out: a path that ends in .npz or .parquet.
        like: as for `open_model`.
        skip: called with an unreadable image and its error; that image is then left out. None raises the error.
        tell: called with the number of images so far, and the number of all.

    Raises:
        ImageError: if there are no images, or none that can be read.
        ConfigError: when `out` or the folder beside it has vectors of another model, or a foreign file.

    >>> embed_files("ViT-B/14:dinov2", ["photos"], "vectors.npz")  # doctest: +SKIP
    1200
    """
    require_format(out)
    out, found, given = local_path(out), list_labelled(places), model
    model = open_model(model, like)
    name = without_secrets(given) if isinstance(given, str | os.PathLike) else model.name
    origin = Origin(name, digest_of_model(model), choose_vector(model, vector), normalize)
    busy = ConfigError(f"Another process writes {out}. Wait for it, or choose another path.")
    arguments = {"vector": vector, "normalize": normalize, "batch_size": batch_size}
    with make_folder(out.absolute().parent), lock(out.with_name(f".{out.name}.lock"), busy):
        known, parts = read_known(out, origin), Parts(out.with_name(f"{out.name}.parts"), origin)
        known.update(parts.vectors_in(name for name in sorted(parts.digests()) if (parts.path / name).exists()))
        rows = compute(model, found, known, parts, skip or raise_error, tell or (lambda done, total: None), **arguments)
        if not rows:
            raise ImageError(f"None of {len(found)} images could be read.")
        blocks = (np.stack([known[x] for _, x in rows[i : i + BLOCK]]) for i in range(0, len(rows), BLOCK))
        shape = len(rows), vector_width(model, vector)
        columns = {"paths": [path for path, _ in rows], "labels": [found[path] for path, _ in rows]}
        with write_whole(out) as path:
            write_vectors(path, blocks, shape, {**columns, "digests": [digest for _, digest in rows]}, origin)
        parts.clear()
    return len(rows)
