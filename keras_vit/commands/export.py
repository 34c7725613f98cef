"""`keras-vit export` and `keras-vit verify`: a model or run to a bundle of proved artefacts, and the proof again."""

from pathlib import Path

import numpy as np
from rich.table import Table

from keras_vit import export, zoo
from keras_vit.training.runs.folder import model_of
from keras_vit.zoo.fetch.urls import public_form


def run(model, out, formats, quantize, calibration, latency, image_size, console, endpoints=()):
    """Exports a model by name, checkpoint or run folder; see `export.bundle`."""
    model = model_of(model)
    loaded = zoo.load(model, image_size=image_size)
    reports = export.bundle(
        loaded,
        out,
        formats,
        quantize,
        images=pictures(calibration, loaded),
        metadata={"source": source_of(model)},
        latency=latency,
        endpoints=endpoints,
        progress=lambda line: console.print(line, soft_wrap=True),
    )
    console.print(table(reports, "Exports, each compared with the model in its own runtime"))
    console.print(f"The bundle is in {out}; prove it again anywhere with: keras-vit verify {out}", soft_wrap=True)


def source_of(model):
    """Where a bundle says its model came from: an address without its password, a name, or a file's name alone."""
    if "://" in str(model):
        return public_form(str(model))
    return Path(model).name if Path(model).exists() else str(model)


def pictures(dataset, model, count=64):
    """`count` training pictures of a dataset as the model's inputs, (n, h, w, c); None for none."""
    if dataset is None:
        return None
    from keras_vit import data

    examples = data.load(dataset, "train")
    batches = examples.train(count, model.preprocessing, augmentation="none")
    with data.data_errors():
        return np.asarray(next(iter(batches))[0])


def verify(folder, console):
    """Proves a bundle again; see `export.verify`."""
    notes = []
    reports = export.verify(folder, progress=notes.append)
    console.print(table(reports, f"{folder}: every artefact gives what the model gave"))
    for line in notes:
        console.print(line, soft_wrap=True)


def table(reports, title):
    """Reports as a table, a line an artefact."""
    timed = any(report.latency_ms for report in reports)
    columns = ["format", "kind", "size", "largest difference", "cosine", "top-1", *(["ms at batch 1, 8"] * timed)]
    grid = Table(*columns, title=title)
    for report in reports:
        agreement = "" if report.top1_agreement is None else f"{report.top1_agreement:.1%}"
        cells = [
            report.format,
            report.quantize or "float32",
            f"{report.bytes / 1e6:.2f} MB",
            f"{report.max_abs_diff:.1e}",
            f"{report.cosine:.6f}",
            agreement,
        ]
        grid.add_row(*cells, *([", ".join(f"{ms:.1f}" for ms in report.latency_ms.values())] * timed))
    return grid
