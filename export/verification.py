"""`verify`: checks a bundle again, without the model and without trusting the bundle's own statements.

The order makes it safe for untrusted bundles: names first, then digests, fields, operations, and only then a runtime,
in a separate process.
"""

import hashlib
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from keras_vit.errors import ExportError, ParityError, printable, quote_some
from keras_vit.export import processes
from keras_vit.export.card import predict_source
from keras_vit.export.formats import format_named, require_known_operations
from keras_vit.export.processes import last_line, run_script
from keras_vit.export.proof.bundled import read_examples, read_model_json
from keras_vit.export.proof.parity import choose_kind, compare_outputs
from keras_vit.export.report import Report, make_report, size_of
from keras_vit.export.staging import MANIFEST, ExportFolder
from keras_vit.export.web import LAYOUT_PATTERN as LAYOUT
from keras_vit.export.web import PATTERN as PAGE
from keras_vit.export.web import list_foreign_files
from keras_vit.files import sha256_of_regular
from keras_vit.owned import files_in

LEAST_TIME = 120  # seconds that an artefact may take
TIME_PER_BYTE = 2e-6  # seconds; a ViT in int8 takes half of this on one slow core
LARGEST_FILE = 1 << 34  # bytes; a sparse file may state a size and have no data
LARGEST_FILES = {
    **dict.fromkeys((".json", ".md", ".py"), 1 << 26),
    **dict.fromkeys((".onnx", ".pb"), 1 << 31),  # protocol buffers
}
NEEDED = ("README.md", "examples.npz", "model.json")
SCRIPT = "predict.py"


def verify(folder: str | os.PathLike, *, progress: Callable[[str], object] | None = None) -> list[Report]:
    """Checks a bundle again without the model: the digests of all files, and every artefact on the stored examples.

    This shows that nothing was damaged or edited since the export, and that the artefacts have the same outputs on this
    machine as the model had on the other. It cannot show who made the bundle, since its maker also makes the digests
    and examples. Only the artefacts of a bundle are run, each in a separate process, and only if they do nothing but
    compute.

    Args:
        folder: a folder that `bundle` wrote.
        progress: called with a line of text for facts that are no errors, such as files that the bundle does not list;
            or None.

    Returns:
        A list of `Report`, one per artefact.

    Raises:
        ExportError: if a file is missing, was changed, has contents that no export writes, or a runtime is missing.
        ParityError: if the outputs differ from the model's.

    >>> reports = keras_vit.export.verify("dist")  # doctest: +SKIP
    >>> reports[0].top1_agreement  # doctest: +SKIP
    1.0
    """
    folder = Path(os.path.expanduser(folder))
    try:
        files = require_intact(folder)
        about = read_model_json(folder)
        require_listed(folder, files, about)
        if progress is not None:
            for line in list_notes(folder, files, about):
                progress(line)
    except OSError as error:
        raise ExportError(f"{folder} cannot be read: {error.strerror or error}.") from error
    inputs, expected = read_examples(
        folder / "examples.npz", about["inputs"], about["outputs"] + about["further_outputs"]
    )
    own = expected[: len(about["outputs"])]
    further = dict(zip((x["name"] for x in about["further_outputs"]), expected[len(own) :], strict=True))
    return [verify_artefact(folder, about, entry, inputs, own, further) for entry in about["artefacts"]]


def require_manifest(folder):
    """{name: SHA-256} of the files in the bundle's list; raises if no export wrote it, or an export was cut off."""
    listed = ExportFolder(folder).digests()
    if not listed:
        raise ExportError(
            f"{folder} is not a bundle: it has no {MANIFEST}, or an empty one. Expected a folder that export wrote."
        )
    if any(len(known) != 1 for known in listed.values()):
        raise ExportError(f"An export to {folder} was cut off while it replaced the files. Export to it again.")
    return {name: known[0] for name, known in listed.items()}


def require_intact(folder):
    """The files in the bundle's list; raises unless each is there, not a link, and unchanged."""
    files = require_manifest(folder)
    for name in sorted({*files, *NEEDED}):
        require_digest(folder, name, files.get(name))
    return files


def require_digest(folder, name, digest):
    path = folder / name
    largest = LARGEST_FILES.get(path.suffix, LARGEST_FILE)
    if any((folder / parent).is_symlink() for parent in Path(name).parents[:-1]) or path.is_symlink():
        raise ExportError(f"{path} is a link, or is reached through one. A bundle has no links.")
    try:
        if path.stat().st_size > largest:
            raise ExportError(f"{path} has more than {largest:,} bytes: no file of a bundle is so large.")
        found = sha256_of_regular(path)
    except FileNotFoundError as error:
        raise ExportError(f"{path} is missing from the bundle. Export it again.") from error
    except OSError as error:
        raise ExportError(f"{path} cannot be read: {error.strerror or error}.") from error
    if digest is None:
        raise ExportError(f"{path} is not listed in {MANIFEST}. Export it again.")
    if found != digest:
        raise ExportError(f"{path} was changed after the export: its SHA-256 is not the one in {MANIFEST}.")


def require_listed(folder, files, about):
    """Raises unless the manifest has the same files as the artefacts in model.json."""
    places = [entry["file"] for entry in about["artefacts"]]
    if about["preprocessing"] and SCRIPT not in files:
        raise ExportError(f"{folder / SCRIPT} is not listed in {MANIFEST}. Export it again.")
    patterns = [format_named(entry["format"]).bundled_pattern() for entry in about["artefacts"]]
    pattern = re.compile("|".join(patterns), re.ASCII)
    for name in files:
        known = (pattern.pattern, LAYOUT, PAGE)
        if name not in (*NEEDED, SCRIPT) and not any(re.fullmatch(names, name, re.ASCII) for names in known):
            raise ExportError(f"{folder / name} does not belong to an artefact that model.json lists.")
    tops = {place.partition("/")[0] for place in places}
    present = [f"{top}/{name}" for top in tops if (folder / top).is_dir() for name in files_in(folder / top)]
    present += [name for name in os.listdir(folder) if pattern.fullmatch(name)]
    for name in {*places, *present} - {*files, *(place for place in places if (folder / place).is_dir())}:
        raise ExportError(f"{folder / name} is not listed in {MANIFEST}. Remove it.")


def list_notes(folder, files, about):
    """Lines on facts that are no errors, but that a user should know."""
    unlisted = [name for name in files_in(folder) if name not in files and name != MANIFEST]
    if unlisted:
        yield f"not part of the bundle, and not checked: {quote_some(unlisted, printable)}"
    expected = predict_source([entry["format"] for entry in about["artefacts"]])
    if SCRIPT in files and files[SCRIPT] != hashlib.sha256(expected.encode()).hexdigest():
        yield f"{SCRIPT} differs from what this version of the package writes: read it before you run it"
    foreign = list_foreign_files(about["name"], files)
    if foreign:
        names = quote_some(foreign, printable)
        yield f"not the page that this version of the package writes: read {names} before you open it"


def verify_artefact(folder, about, entry, inputs, expected, further):
    """The report of one artefact; `expected` are the model's outputs for the examples, `further` its named ones."""
    expected = [*expected, *(further[name] for name in entry["further_outputs"])]
    row = format_named(entry["format"])
    kind = choose_kind(entry["quantize"], row)
    path = folder / entry["file"]
    require_known_operations(row.name, path)
    received = run_artefact(path, row, [x["name"] for x in about["inputs"]], entry["batches"], inputs)
    shapes = [[x.shape for x in outputs if x.dtype.kind in "fiub"] for outputs in (expected, received)]
    if shapes[0] != shapes[1]:
        raise ParityError(f"{path} has outputs of the shapes {shapes[1]}; the model's had {shapes[0]}.")
    difference = compare_outputs(expected, received, entry["further_outputs"], about["probabilities"] is not None)
    broken = kind.broken_bounds(difference)
    if broken:
        raise ParityError(
            f"{path} does not match the model: its outputs differ by up to {difference.max_abs_diff:.2e}. "
            f"{'; '.join(broken)}."
        )
    return make_report(
        row,
        path,
        kind,
        difference,
        model_weight_bytes=entry["model_weight_bytes"],
        images=len(inputs[0]),
        batches=tuple(entry["batches"]),
        finer=entry["finer"],
    )


def run_artefact(path, row, names, batches, inputs):
    """The artefact's outputs for the examples, from a separate process: a damaged file may crash it."""
    time_limit = LEAST_TIME + round(size_of(path) * TIME_PER_BYTE)
    with tempfile.TemporaryDirectory() as work:
        places = {name: os.path.join(work, f"{name}.npz") for name in ("inputs", "outputs")}
        np.savez(places["inputs"], *inputs)
        job = {"path": str(path.resolve()), "names": names, "batches": batches, **places}
        job["reading"] = row.load_reader().__file__
        run_script(processes.__file__, job, lambda log: f"{path} does not run: {last_line(log)}", time_limit)
        with np.load(places["outputs"], allow_pickle=False) as arrays:
            return [arrays[f"arr_{i}"] for i in range(len(arrays.files))]
