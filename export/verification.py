"""`verify`: proves a bundle again, without the model and without believing what the bundle says of itself.

The order is what makes it safe with a stranger's bundle: names first, then digests, fields, operations, and only then a
runtime, in a process of its own.
"""

import os
import tempfile
from pathlib import Path

import numpy as np

from keras_vit.errors import ExportError, ParityError
from keras_vit.export.conversion import FORMATS
from keras_vit.export.proof.examples import read_examples
from keras_vit.export.proof.model_json import read_model_json
from keras_vit.export.proof.operations import require_known_operations
from keras_vit.export.proof.parity import difference
from keras_vit.export.quantization import kind_of
from keras_vit.export.report import Report, size_of
from keras_vit.export.staging.listing import MANIFEST, beside, files_in, read_manifest
from keras_vit.export.staging.placing import JOURNAL, said
from keras_vit.export.staging.stage import HIDDEN
from keras_vit.export.subprocess_job import last_line, run_apart
from keras_vit.files import sha256_of_regular
from keras_vit.text import printable

LEAST_TIME = 120  # seconds that an artefact may take
TIME_PER_BYTE = 2e-6  # seconds; a ViT in int8 takes half of this on one slow core
LARGEST_FILE = 1 << 34  # bytes; a file may say that it has many and hold none
LARGEST_FILES = {".pb": 1 << 31, ".onnx": 1 << 31, ".json": 1 << 26, ".md": 1 << 26, ".py": 1 << 26}
NEEDED = ("README.md", "examples.npz", "model.json")
SCRIPT = "predict.py"


def verify(folder, *, progress=None):
    """Proves a bundle again: digests of all its files, and every artefact on the stored examples, without the model.

    It tells that nothing was damaged or edited since the export, and that the artefacts give here what the model gave
    there. It cannot tell who made the bundle: whoever makes one makes its digests and examples too. Nothing of the
    bundle is run but its artefacts, each in a process of its own, and those only if they hold nothing but computation.

    Args:
        folder: that `bundle` wrote.
        progress: called with a line of text for what is not an error and should be known, such as files that the
            bundle does not list; or None.

    Returns:
        A list of `Report`, one per artefact.

    Raises:
        ExportError: when a file is missing, was changed, holds what no export writes, or its runtime is not installed.
        ParityError: when outputs are not those that the model gave.

    >>> verify("dist")[0].top1_agreement
    1.0
    """
    folder = Path(folder)
    try:
        files = require_whole(folder)
        about = read_model_json(folder)
        require_listed(folder, files, about)
        for line in notes(folder, files) if progress else ():
            progress(line)
    except OSError as error:
        raise ExportError(f"{printable(folder)} cannot be read: {printable(error.strerror or error)}.") from error
    inputs, expected = read_examples(folder / "examples.npz", about["inputs"], about["outputs"])
    names = [entry["name"] for entry in about["inputs"]]
    return [verified(folder, entry, names, inputs, expected) for entry in about["artefacts"]]


def require_whole(folder):
    """{name: SHA-256} of the files of the bundle; each is there, no link, and as the manifest says."""
    if (folder / HIDDEN / JOURNAL).exists():
        raise ExportError(
            f"An export to {printable(folder)} was cut off while it replaced the files. Export to it again: the files "
            "of the former export are put back first."
        )
    files = read_manifest(folder)
    if files is None:
        raise ExportError(
            f"{printable(folder)} is not a bundle: it has no {MANIFEST}. Give a folder that export wrote."
        )
    for name in sorted({*files, *NEEDED}):
        require_digest(folder, name, files.get(name))
    return files


def require_digest(folder, name, digest):
    path = folder / name
    largest = LARGEST_FILES.get(path.suffix, LARGEST_FILE)
    if any((folder / parent).is_symlink() for parent in Path(name).parents[:-1]) or path.is_symlink():
        raise ExportError(f"{printable(path)} is or lies behind a link. A bundle holds files alone.")
    try:
        if path.stat().st_size > largest:
            raise ExportError(f"{printable(path)} has more than {largest:,} bytes, which no file of a bundle has.")
        found = sha256_of_regular(path)
    except FileNotFoundError as error:
        raise ExportError(f"{printable(path)} is missing from the bundle. Export it again.") from error
    except OSError as error:
        raise ExportError(f"{printable(path)} cannot be read: {printable(error.strerror or error)}.") from error
    if digest is None:
        raise ExportError(f"{printable(path)} is not listed in {MANIFEST}. Export it again.")
    if found != digest:
        raise ExportError(f"{printable(path)} was changed after the export: its SHA-256 is not the one in {MANIFEST}.")


def require_listed(folder, files, about):
    """What the manifest lists belongs to artefacts that will be proved, which hold nothing that it does not list."""
    places = [entry["file"] for entry in about["artefacts"]]
    if about["preprocessing"] and SCRIPT not in files:
        raise ExportError(f"{printable(folder / SCRIPT)} is not listed in {MANIFEST}. Export it again.")
    for name in files:
        if name not in (*NEEDED, SCRIPT) and not any(belongs(name, place) for place in places):
            raise ExportError(f"{printable(folder / name)} belongs to no artefact that model.json lists.")
    tops = {place.partition("/")[0] for place in places}
    held = [f"{top}/{name}" for top in tops if (folder / top).is_dir() for name in files_in(folder / top)]
    held += [name for name in os.listdir(folder) if beside("model").fullmatch(name)]
    for name in {*places, *held} - {*files, *(place for place in places if (folder / place).is_dir())}:
        raise ExportError(f"{printable(folder / name)} is not listed in {MANIFEST}. Remove it.")


def belongs(name, place):
    """Whether the file is of the artefact: itself, in its folder, or its external data."""
    return name == place or name.startswith((f"{place}/", f"{place.removesuffix('.onnx')}-"))


def notes(folder, files):
    """Lines on what a user should know although it is not an error."""
    unlisted = [name for name in files_in(folder) if name not in files and name != MANIFEST]
    if unlisted:
        yield f"not part of the bundle, and not looked at: {said(unlisted)}"
    if SCRIPT in files and files[SCRIPT] != sha256_of_regular(Path(__file__).with_name("predict_script.py")):
        yield f"{SCRIPT} is not the one that this version of the package writes: read it before you run it"


def verified(folder, entry, names, inputs, expected):
    row = next(row for row in FORMATS if row.name == entry["format"])
    kind = kind_of(entry["quantize"], row.kinds, row.name)
    path = folder / entry["file"]
    require_known_operations(row.name, path)
    received = outputs_of(path, row.name, names, entry["batches"], inputs)
    shapes = [[x.shape for x in outputs if x.dtype.kind in "fiub"] for outputs in (expected, received)]
    if shapes[0] != shapes[1]:
        raise ParityError(f"{printable(path)} gives outputs of the shapes {shapes[1]}; the model gave {shapes[0]}.")
    found = difference(expected, received)
    broken = kind.broken_bounds(found)
    if broken:
        raise ParityError(
            f"{printable(path)} does not give the model's outputs: they differ by up to {found.max_abs_diff:.2e}. "
            f"{'; '.join(broken)}."
        )
    return Report(
        format=row.name,
        path=str(path),
        quantize=kind.name,
        bytes=size_of(path),
        weight_bytes=weight_bytes(row, path),
        model_weight_bytes=entry["model_weight_bytes"],
        **found.numbers(),
        images=len(inputs[0]),
        batches=tuple(entry["batches"]),
        tolerance=kind.max_rel_diff,
    )


def outputs_of(path, format_name, names, batches, inputs):
    """What the artefact's runtime gives for the examples, in a process that a damaged file may bring down."""
    time_limit = LEAST_TIME + round(size_of(path) * TIME_PER_BYTE)
    with tempfile.TemporaryDirectory() as work:
        places = {name: os.path.join(work, f"{name}.npz") for name in ("inputs", "outputs")}
        np.savez(places["inputs"], *inputs)
        job = {"format": format_name, "path": str(path.resolve()), "names": names, "batches": batches, **places}
        run_apart("proof/runtimes.py", job, lambda log: f"{printable(path)} does not run: {last_line(log)}", time_limit)
        with np.load(places["outputs"], allow_pickle=False) as arrays:
            return [arrays[f"arr_{i}"] for i in range(len(arrays.files))]


def weight_bytes(row, path):
    try:
        return row.module.weight_bytes(path)
    except Exception as error:  # a file whose runtime reads it otherwise than its schema
        raise ExportError(f"{printable(path)} is damaged: {printable(error)[:400]}.") from error
