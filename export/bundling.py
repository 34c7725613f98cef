"""The bundle: a folder with artefacts of a model, all that is needed to use them, and examples for `verify`."""

import dataclasses
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Unpack

import keras
import numpy as np

from keras_vit.errors import ExportError
from keras_vit.export.card import predict_source, write_card
from keras_vit.export.conversion import Options, write_proved
from keras_vit.export.description import describe_outputs
from keras_vit.export.formats import FORMATS, NAMES, USUAL, Quantize, format_named, require_known_operations
from keras_vit.export.preparation import prepare
from keras_vit.export.proof.bundled import EXAMPLES, MOST_EXAMPLES, read_examples, read_model_json, write_examples
from keras_vit.export.proof.comparison import compute_outputs
from keras_vit.export.proof.parity import choose_kind
from keras_vit.export.report import Report
from keras_vit.export.staging import ExportFolder, stage
from keras_vit.export.web import FOLDER as PAGE
from keras_vit.export.web import LAYOUT, LAYOUT_FILES, TEXTS, WEB_LAYOUTS
from keras_vit.export.web.page import require_page, write_page
from keras_vit.export.web.transformers_js import describe_layout, write_layout
from keras_vit.files import local_path

ALIKE = ("inputs", "outputs", "preprocessing", "labels", "config")  # equal in every model.json of one model
ROUNDING = 1e-4  # of the largest output, between machines


def bundle(
    model: keras.Model,
    out: str | os.PathLike,
    formats: Iterable[str] = USUAL,
    quantize: Quantize | None = None,
    *,
    endpoints: Sequence[str] = (),
    web: bool = False,
    vendor: bool = False,
    pictures: Sequence[np.ndarray] | None = None,
    references: tuple[Sequence[str], np.ndarray] | None = None,
    web_layout: Literal["transformers"] | None = None,
    progress: Callable[[str], object] | None = None,
    **options: Unpack[Options],
) -> list[Report]:
    """Writes artefacts, model.json, README.md (a model card), predict.py and examples.npz into the folder `out`.

    A manifest lists them with their SHA-256. The files appear after every artefact was compared with the model. They
    replace those of an earlier export. Its artefacts of other formats stay if they belong to the same model, that is,
    have an equal description and the outputs of the bundle's examples; otherwise nothing is written. Files that no
    export wrote, or that were changed since, stay; if one is in the way, an error is raised.

    Args:
        model: a built keras.Model.
        formats: any of "onnx", "tflite", "saved_model", the default, and "stablehlo", "openvino".
        quantize: see `convert`; a SavedModel and StableHLO stay in float32.
        endpoints: methods of the model to add, such as ("features", "attention"): all to the SavedModel, "attention"
            also to the others; see `convert`.
        web: whether to make a page for browsers, the folder web/; `keras-vit serve` opens it.
        vendor: whether to fetch onnxruntime-web once and put it beside the page, so that the page needs no network;
            otherwise browsers fetch it from a content network, and check its digest.
        pictures: up to four sample images for the page, uint8 (h, w, channels) of any size. None for two of the
            bundle's examples and two photographs.
        references: names, and vectors (n, width) of the model or of texts, for a page of an embedding model: it shows
            those nearest to a picture, by cosine.
        web_layout: "transformers" adds the folder transformers/, an image classifier for transformers.js.
        progress: called with a line of text at every step, and for files that were removed; or None.
        options: images, image_size, batch_size, metadata, latency; see `convert`.

    Returns:
        A list of `Report`, one per format.

    Raises:
        ExportError, ParityError: as for `convert`, or if a page cannot feed the model or a browser cannot hold it; then
            nothing changes at `out`.
        DownloadError: if `vendor` is True and onnxruntime-web cannot be fetched; then nothing changes, either.

    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None)
    >>> [report.format for report in keras_vit.export.bundle(model, "dist", formats=["onnx"])]
    ['onnx']
    """
    tell, out = progress or (lambda line: None), local_path(out, ExportError)
    rows = [format_named(name) for name in dict.fromkeys(formats)]
    require_formats(rows, quantize, endpoints)
    if vendor and not web:
        raise ExportError(
            "vendor copies what a page needs, but no page was asked for. Ask for one with web=True or --web."
        )
    latency = options.pop("latency", False)
    source = prepare(model, **options)
    if web:
        require_page(source, vendor, references)
    names = ["README.md", "examples.npz", "model.json", *layout_files(source, web_layout)]
    names += ["predict.py"] if source.describe(source.choose_shapes())["preprocessing"] else []
    names += [f"{PAGE}/{name}" for name in TEXTS] if web else []
    names += [name for row in rows for name in row.bundled_files()]
    with stage(out, names, is_folder=True, tell=tell) as staging:
        reports = []
        others = keep_others(source, out, staging, [row.name for row in rows])
        for entry in others:
            tell(f"{entry['format']}: kept as it is, of the same model")
        for row in rows:
            tell(f"{row.name}: converting and comparing")
            path = staging / row.bundled
            path.parent.mkdir(parents=True, exist_ok=True)
            served, kind = row.supported_endpoints(endpoints), quantize if row.quantize else None
            report = write_proved(source, row, path, kind, served, latency, tell)
            require_openable(row, path, out / row.bundled)
            reports.append(dataclasses.replace(report, path=str(out / row.bundled)))
            tell(str(reports[-1]))
        about, inputs = write_companions(source, staging, [*others, *map(describe_artefact, reports)])
        if web_layout:
            write_layout(source, staging / LAYOUT, tell)
        read_model_json(staging)  # raises an error for a bundle that `verify` would refuse
        if web:
            shown = {"pictures": pictures, "references": references, "vendor": vendor}
            write_page(source, staging / PAGE, about, inputs, **shown, tell=tell)
    return reports


def require_openable(row, path, destination):
    """Raises an ExportError of the artefact in `path`, by the path it was meant for, if nobody could open it."""
    try:
        require_known_operations(row.name, path)
    except ExportError as error:
        raise ExportError(str(error).replace(str(path), str(destination))) from None


def require_formats(rows, quantize, endpoints):
    """Raises, before any work, unless there are formats and they support the requested `quantize` and endpoints."""
    if not rows:
        raise ExportError(f"A bundle needs a format. Expected some of: {', '.join(NAMES)}.")
    for row in rows:
        row.require_backend()
    for row in [row for row in rows if row.quantize] or rows:
        choose_kind(quantize, row)
    for name in endpoints:
        if not any(row.supported_endpoints([name]) for row in rows):
            able = [row for row in FORMATS if row.supported_endpoints([name])]
            raise ExportError(
                f"Only a {' or '.join(row.title for row in able)} can have the endpoint {name!r}. Add "
                f"{' or '.join(row.name for row in able)} to the formats."
            )


def layout_files(source, web_layout):
    """The layout's files in the bundle; raises, before any work, if the layout cannot describe the model."""
    if web_layout not in (None, *WEB_LAYOUTS):
        raise ExportError(f"No web_layout is called {web_layout!r}. Expected: {', '.join(WEB_LAYOUTS)}.")
    return [f"{LAYOUT}/{name}" for name in (*describe_layout(source), *LAYOUT_FILES)] if web_layout else []


def keep_others(source, out, staging, formats):
    """Copies artefacts of other formats from `out` into the new bundle; returns their entries of model.json."""
    if not ExportFolder(out).digests() or not (Path(out) / "model.json").is_file():
        return []
    before = read_model_json(out)
    others = [entry for entry in before["artefacts"] if entry["format"] not in formats]
    if others:
        require_same_model(out, before, others, source)
        keep_artefacts(out, others, staging)
    return others


def require_same_model(folder, before, others, source):
    """Refuses to put artefacts beside `others`, of the model.json `before`, since that describes one model: the source
    must have an equal description, and the outputs of the bundle's examples.
    """
    now = json.loads(json.dumps(source.describe(source.choose_shapes()), default=str))
    same = all(before[name] == now[name] for name in ALIKE)
    if same:
        further = before["further_outputs"]
        inputs, outputs = read_examples(Path(folder) / "examples.npz", before["inputs"], before["outputs"] + further)
        received = compute_outputs(source.functional, inputs, [x["name"] for x in further])
        same = all(
            np.abs(x.astype("float64") - y).max() <= ROUNDING * max(np.abs(y).max(), 1e-6)
            for x, y in zip(received, outputs, strict=True)
        )
    if not same:
        names = [entry["format"] for entry in others]
        raise ExportError(
            f"{folder} has {' and '.join(names)} of another model, and a bundle has one model. "
            f"Export to these formats too, to replace them, or choose another folder."
        )


def keep_artefacts(folder, others, staging):
    """Copies the files of artefacts that stay from the old bundle to the new one."""
    files = ExportFolder(folder).digests()
    for entry in others:
        pattern = re.compile(format_named(entry["format"]).bundled_pattern(), re.ASCII)
        for name in filter(pattern.fullmatch, files):
            if len(files[name]) > 1 or not Path(folder, name).is_file():
                raise ExportError(
                    f"{Path(folder, name)} is missing, or an export was cut off while it replaced {name}. Export to "
                    f"{entry['format']} too, to replace it, or choose another folder."
                )
            (staging / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(Path(folder, name), staging / name)


def count_examples(least, artefacts):
    """The number of examples: at least `least`, in whole batches of every artefact with a fixed batch."""
    fixed = [entry["batches"][0] for entry in artefacts if len(entry["batches"]) == 1]
    whole = math.lcm(*fixed)
    if whole > MOST_EXAMPLES:
        raise ExportError(
            f"The examples of a bundle are whole batches of each artefact, {MOST_EXAMPLES:,} at most. Batches of "
            f"{' and '.join(map(str, sorted(set(fixed))))} need {whole:,}. Choose other batch sizes, or another folder."
        )
    return -(-least // whole) * whole


def write_companions(source, folder, artefacts):
    """Writes the examples, model.json, the card, and predict.py if the model knows its preprocessing; returns the
    contents of model.json and the examples' inputs.
    """
    artefacts = sorted(artefacts, key=lambda entry: NAMES.index(entry["format"]))
    model, shapes = source.functional, source.choose_shapes()
    count = count_examples(EXAMPLES, artefacts)
    inputs = [np.resize(x, (count, *x.shape[1:])) for x in source.choose_inputs(shapes, count)]
    names = sorted({name for entry in artefacts for name in entry["further_outputs"]})
    outputs = compute_outputs(model, inputs, names)
    write_examples(folder / "examples.npz", inputs, outputs)
    further = describe_outputs(names, outputs[len(model.outputs) :])
    about = source.describe(shapes, further)
    about.setdefault("date", datetime.now(UTC).date().isoformat())
    about["artefacts"] = artefacts
    (folder / "model.json").write_text(json.dumps(about, indent=2, default=str) + "\n", "utf-8")
    (folder / "README.md").write_text(write_card(about), "utf-8")
    if about["preprocessing"]:
        (folder / "predict.py").write_text(predict_source([entry["format"] for entry in artefacts]), "utf-8")
    return about, inputs


def describe_artefact(report):
    """A report as an entry of model.json."""
    entry = {name: value for name, value in dataclasses.asdict(report).items() if name != "path"}
    return {"file": format_named(report.format).bundled, **entry}
