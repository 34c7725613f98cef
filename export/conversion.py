"""`convert` writes a model to a file or folder, and compares both before the file appears."""

import dataclasses
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

import keras
import numpy as np

from keras_vit.errors import ExportError
from keras_vit.export.formats import FORMATS, Format, Quantize, format_of_path
from keras_vit.export.preparation import Source, prepare, raise_converter_errors
from keras_vit.export.proof.comparison import Trial, compare, measure_latencies, require_parity
from keras_vit.export.proof.parity import choose_kind
from keras_vit.export.report import Report, make_report
from keras_vit.export.staging import stage
from keras_vit.files import local_path


class Options(TypedDict, total=False):
    """The keyword arguments that `convert` and `bundle` share; see `convert`."""

    images: np.ndarray | Iterable[Any] | None
    image_size: int | tuple[int, int] | None
    batch_size: int | None
    metadata: dict[str, Any] | None
    latency: bool


def convert(
    model: keras.Model,
    path: str | os.PathLike,
    *,
    quantize: Quantize | None = None,
    endpoints: Sequence[str] = (),
    **options: Unpack[Options],
) -> Report:
    """Writes `model` in a format, loads it in that format's runtime and compares it with the model.

    The artefact replaces an earlier one at `path` only after the comparison; until then nothing there changes. Files
    that no export wrote, or that were changed since, are never replaced or removed.

    Args:
        model: a built keras.Model, from this package or not.
        path: a file ".onnx", ".tflite" or ".stablehlo", or a folder ".openvino"; without a suffix, the folder of a
            SavedModel.
        quantize: None keeps float32; "float16" stores the weights in half the bytes; "dynamic" computes products
            with weights in int8; "int8" also calibrates the ranges of their inputs on `images`. Not for a SavedModel
            or StableHLO.
        endpoints: methods of the model to add: to a SavedModel as signatures, such as ("features", "attention"); to
            the others ("attention",), a second output of that name, float32 (n, blocks, heads, l, l).
        images: inputs to calibrate and compare on: an array or a tf.data.Dataset; at most 64 are used. uint8 images go
            through `model.preprocessing`. None uses scikit-learn's photographs; for "int8" these suit only models of
            photographs. Without scikit-learn, float32 and float16 use waves.
        image_size: (height, width), or an int, for a model that takes images of any size.
        batch_size: None leaves the batch free; a number fixes it, so that TFLite is faster.
        metadata: entries for the artefact's description, such as {"source": ..., "licence": ...}. Passwords and
            queries of addresses and folders of this machine are left out.
        latency: whether to measure milliseconds at batch 1 and 8, for the artefact and for the float model.

    Returns:
        A `Report`.

    Raises:
        ExportError: if the model, the path or an argument cannot be used.
        ParityError: if the artefact's outputs differ from the model's. What was at `path` before stays.

    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None)
    >>> keras_vit.export.convert(model, "vit.onnx").cosine > 0.999
    True
    """
    path = local_path(path, ExportError)
    form, latency = format_of_path(path), options.pop("latency", False)
    with stage(path, form.files or [path.name], is_folder=form.is_folder) as staging:
        report = write_proved(prepare(model, **options), form, staging, quantize, endpoints, latency)
    return dataclasses.replace(report, path=str(path))


def write_proved(
    source: Source,
    form: Format,
    path: Path,
    quantize: Quantize | None,
    endpoints: Sequence[str] = (),
    latency: bool = False,
    tell: Callable[[str], object] | None = None,
) -> Report:
    """Does what `convert` does, to a new path in the format `form`; `tell` takes lines of text."""
    form.require_backend()
    kind, model = choose_kind(quantize, form), source.functional
    with raise_converter_errors(form.name):
        require_float_weights(model, form)
        require_endpoints(model, form, endpoints)
        trial = Trial(source, form, kind, tuple(endpoints))
        finer = form.load_writer().write(trial.order(tell), path)
        difference = compare(trial, path)
        require_parity(trial, difference)
        for other in trial.at_other_sizes():
            require_parity(other, compare(other, path))
        latencies = measure_latencies(trial, path) if latency else {}
    return make_report(
        form,
        path,
        kind,
        difference,
        model_weight_bytes=4 * model.count_params(),
        images=trial.compared,
        batches=trial.batches,
        finer=finer,
        **latencies,
    )


def require_float_weights(model, form):
    """Refuses a model that `keras.Model.quantize` has changed, if the format quantizes by itself."""
    # `model.layers` has only the outermost layers, and Keras has no public way to the inner ones.
    modes = set(filter(None, (getattr(layer, "quantization_mode", None) for layer in model._flatten_layers())))
    if modes and "int8" in form.quantize:
        others = " or ".join(row.title for row in FORMATS if not row.quantize)
        raise ExportError(
            f"The model {model.name!r} was quantized by Keras ({', '.join(sorted(modes))}), and {form.title} "
            'cannot store that. Export the model as it was before model.quantize, with quantize="int8" or "dynamic"; '
            f"or export this one as a {others}."
        )


def require_endpoints(model, form, endpoints):
    """Raises an ExportError unless the format and the model have all `endpoints`."""
    for name in endpoints:
        if name not in form.supported_endpoints(endpoints):
            able = " or ".join(row.title for row in FORMATS if row.endpoints)
            raise ExportError(
                f"Only a {able} can have the endpoint {name!r}. Expected for {form.name}: "
                f"{' or '.join(map(repr, form.further_outputs))}."
            )
        method = name if form.endpoints else f"with_{name}"
        if not callable(getattr(model, method, None)):
            raise ExportError(f"The model {model.name!r} has no endpoint {name!r}: it has no method {method!r}.")
