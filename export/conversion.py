"""`convert`: a model to a file or folder that is proved equal to it before it appears."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import keras
import numpy as np

from keras_vit.errors import ExportError, ParityError
from keras_vit.export import onnx, saved_model, tflite
from keras_vit.export.description import described
from keras_vit.export.files import staged
from keras_vit.export.parity import BATCHES, TOLERANCES, difference, in_batches
from keras_vit.export.preparation import input_shapes, prepared, probe_shapes
from keras_vit.export.probes import inputs_for
from keras_vit.export.report import Report, size_of

PROBES = 8


@dataclass(frozen=True)
class Format:
    """A row: the suffix of its paths, its name, the module that writes and loads it, whether image sizes may be free."""

    suffix: str
    name: str
    module: ModuleType
    free_size: bool


FORMATS = (
    Format(".onnx", "onnx", onnx, True),
    Format(".tflite", "tflite", tflite, False),
    Format("", "saved_model", saved_model, True),
)


def convert(model, path, *, quantize=None, images=None, image_size=None, metadata=None):
    """Writes `model` as ONNX, TFLite or SavedModel, loads it in that format's runtime and compares it with the model.

    The artefact replaces an earlier one at `path` only after it has proved equal; until then nothing there changes.

    Args:
        model: a built keras.Model, from this package or not.
        path: ends in ".onnx" or ".tflite"; without a suffix, the folder of a SavedModel.
        quantize: None keeps float32.
        images: what to compare on: an array or a tf.data.Dataset of inputs; None takes photographs that scikit-learn has.
        image_size: (height, width), or an int, for a model whose own is free.
        metadata: entries for the artefact's description, such as {"source": ..., "licence": ...}.

    Returns:
        A `Report`.

    Raises:
        ExportError: when the model or the path cannot be used; the sentence says why.
        ParityError: when the artefact's outputs are not the model's. What was at `path` before stays.

    >>> convert(model, "vit.onnx").top1_agreement
    1.0
    """
    form = format_of(path)
    require_quantization(form, quantize)
    source = prepared(model)
    shapes = input_shapes(model, source, image_size, form.free_size)
    inputs = inputs_for(source, probe_shapes(shapes, model), images, PROBES, getattr(model, "preprocessing", None))
    with staged(path) as staging:
        form.module.write(source, shapes, staging, described(model, source, shapes, metadata))
        found = compared(source, form, staging, inputs)
        require_parity(found, form, quantize, source, shapes, inputs)
        size = size_of(staging.parent)
    return Report(
        format=form.name,
        path=str(path),
        quantize=quantize,
        bytes=size,
        **found.numbers(),
        images=len(inputs[0]),
        batches=BATCHES,
        tolerance=TOLERANCES[quantize],
    )


def format_of(path):
    suffix = Path(path).suffix.lower()
    for form in FORMATS:
        if form.suffix == suffix:
            return form
    raise ExportError(
        f"No format is written as *{suffix}. Expected a path that ends in .onnx or .tflite, or, for the folder of a "
        f"SavedModel, one without a suffix. Received: {path}."
    )


def require_quantization(form, quantize):
    if quantize is not None:
        raise ExportError(f"{form.name} has no quantization {quantize!r}. Expected: None.")


def runner(model):
    """The model at inference as a function from a list of arrays to the list of outputs."""

    def run(inputs):
        arguments = inputs[0] if len(inputs) == 1 else inputs
        return [np.asarray(x) for x in keras.tree.flatten(model(arguments, training=False))]

    return run


def compared(source, form, path, inputs):
    """The difference between the model and its artefact at `path`; `same_for_all` tells a proof that shows little."""
    names = [x.name for x in source.inputs]
    expected = in_batches(runner(source), inputs, (len(inputs[0]),))
    return difference(expected, in_batches(form.module.load(path, names), inputs))


def require_parity(found, form, quantize, source, shapes, inputs):
    """Raises unless the difference is within bounds; not-a-number never is.

    Outputs that are the same for every picture, such as those of a new zero head, prove nothing: then the output of
    every layer is compared instead.
    """
    tolerance = TOLERANCES[quantize]
    if found.max_rel_diff <= tolerance and found.varies:
        return
    parting = first_parting(form, source, shapes, inputs, tolerance)
    if found.max_rel_diff <= tolerance and parting is None:
        return
    where = "" if parting is None else f" The first layer that parts is {parting[0]!r}, by {parting[1]:.2e}."
    raise ParityError(
        f"The {form.name} artefact is not the model: outputs differ by up to {found.max_abs_diff:.2e} "
        f"({found.max_rel_diff:.2e} of the largest, allowed {tolerance:.0e}).{where} Nothing was written."
    )


def has_one_output(layer):
    """Whether the layer computes one tensor at one place of the model."""
    return not isinstance(layer, keras.layers.InputLayer) and len(layer._inbound_nodes) == 1 and (
        len(layer._inbound_nodes[0].outputs) == 1
    )


def first_parting(form, source, shapes, inputs, tolerance):
    """The first layer whose output differs in an artefact of this format: (name, relative difference), or None."""
    layers = [layer for layer in source.layers if has_one_output(layer)]
    every = keras.Model(source.input, [layer.output for layer in layers])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"layers{form.suffix}"
        form.module.write(every, shapes, path, {})
        expected = in_batches(runner(every), inputs, (len(inputs[0]),))
        received = in_batches(form.module.load(path, [x.name for x in source.inputs]), inputs)
    for layer, a, b in zip(layers, expected, received, strict=True):
        found = difference([a], [b])
        if not found.max_rel_diff <= tolerance:
            return layer.name, found.max_rel_diff
    return None
