"""`convert`: a model to a file or folder that is proved equal to it before it appears."""

import contextlib
import dataclasses
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import keras
import numpy as np

from keras_vit.errors import ExportError, KerasVitError, ParityError
from keras_vit.export import onnx, saved_model, tflite
from keras_vit.export.description import described
from keras_vit.export.preparation import arguments, input_shapes, prepared, probe_shapes
from keras_vit.export.proof.parity import BATCHES, difference
from keras_vit.export.proof.probes import inputs_for
from keras_vit.export.proof.runtimes import in_batches
from keras_vit.export.quantization import kind_of
from keras_vit.export.report import Report, size_of
from keras_vit.export.staging.stage import staged
from keras_vit.text import printable

PROBES = 8
QUANTIZED_PROBES = 64
SIMPLE = (None,)
QUANTIZABLE = (None, "float16", "dynamic", "int8")


@dataclass(frozen=True)
class Format:
    """A row: the suffix of its paths, its name, the module that writes and loads it, whether image sizes may be free,
    its kinds of quantization, and, where it is a folder, the names of the files in it."""

    suffix: str
    name: str
    module: ModuleType
    free_size: bool
    kinds: tuple
    files: tuple = ()

    def names_at(self, path):
        """The names of an artefact's files, as far as they are known before: in its folder, or beside each other."""
        return self.files or (Path(path).name,)


FORMATS = (
    Format(".onnx", "onnx", onnx, True, QUANTIZABLE),
    Format(".tflite", "tflite", tflite, False, QUANTIZABLE),
    Format("", "saved_model", saved_model, True, SIMPLE, saved_model.FILES),
)


def convert(
    model,
    path,
    *,
    quantize=None,
    images=None,
    image_size=None,
    batch_size=None,
    metadata=None,
    latency=False,
    endpoints=(),
):
    """Writes `model` as ONNX, TFLite or SavedModel, loads it in that format's runtime and compares it with the model.

    The artefact replaces an earlier one at `path` only after it has proved equal; until then nothing there changes.
    Files that no export wrote, or that were changed since, are never replaced or removed.

    Args:
        model: a built keras.Model, from this package or not.
        path: ends in ".onnx" or ".tflite"; without a suffix, the folder of a SavedModel.
        quantize: None keeps float32; "float16" stores the weights in half the bytes; "dynamic" computes products
            with weights in int8; "int8" also calibrates the ranges of their inputs on `images`. Not for a SavedModel.
        images: what to calibrate and compare on: an array or a tf.data.Dataset of inputs, of which at most 64 are used;
            uint8 pictures go through `model.preprocessing`. None takes photographs that scikit-learn has, which suits
            "int8" only for models of photographs.
        image_size: (height, width), or an int, for a model whose own is free.
        batch_size: None leaves the batch free; a number fixes it, which TFLite runs faster.
        metadata: entries for the artefact's description, such as {"source": ..., "licence": ...}. Passwords, queries
            and folders of this machine are left out; see `described`.
        latency: whether to measure milliseconds at batch 1 and 8, beside the float original.
        endpoints: methods of the model that a SavedModel shall have too, such as ("features", "attention").

    Returns:
        A `Report`.

    Raises:
        ExportError: when the model, the path or an argument cannot be used; the sentence says why.
        ParityError: when the artefact's outputs are not the model's. What was at `path` before stays.

    >>> convert(model, "vit.onnx").top1_agreement
    1.0
    """
    form = format_of(path)
    with staged(path, form.names_at(path), is_folder=bool(form.files)) as staging:
        report = write_proved(
            model,
            form,
            staging,
            quantize=quantize,
            images=images,
            image_size=image_size,
            batch_size=batch_size,
            metadata=metadata,
            latency=latency,
            endpoints=endpoints,
        )
    return dataclasses.replace(report, path=str(path))


def write_proved(
    model,
    form,
    path,
    *,
    quantize=None,
    images=None,
    image_size=None,
    batch_size=None,
    metadata=None,
    latency=False,
    endpoints=(),
):
    """`convert` to a path where nothing is, in the format of the row `form`."""
    kind = kind_of(quantize, form.kinds, form.name)
    with export_errors(model, form):
        source = prepared(model)
        require_float_weights(source, form)
        shapes = [with_batch(s, batch_size) for s in input_shapes(model, source, image_size, form.free_size)]
        inputs = inputs_for(
            source, probe_shapes(shapes, model), images, probe_count(kind, batch_size), model_preprocessing(model)
        )
        further = require_endpoints(form, source, endpoints)
        calibration = dict(zip((x.name for x in source.inputs), inputs, strict=True)) if kind.calibrated else None
        sizes = BATCHES if shapes[0][0] is None else (shapes[0][0],)
        about = described(model, source, shapes, metadata)
        form.module.write(source, shapes, path, about, quantize, calibration, **further)
        found = compared(source, form, path, inputs, sizes)
        require_parity(found, form, kind, source, shapes, inputs, sizes)
        times = latencies(source, form, path, inputs, sizes) if latency else {}
    return Report(
        format=form.name,
        path=str(path),
        quantize=quantize,
        bytes=size_of(path),
        weight_bytes=form.module.weight_bytes(path),
        model_weight_bytes=4 * source.count_params(),
        **found.numbers(),
        images=len(inputs[0]),
        batches=sizes,
        tolerance=kind.max_rel_diff,
        **times,
    )


@contextlib.contextmanager
def export_errors(model, form):
    """Within, whatever a converter or a runtime raises becomes an ExportError, with that as its cause."""
    try:
        yield
    except KerasVitError:
        raise
    except Exception as error:
        said = (str(error).strip().splitlines() or ["no message"])[0].rstrip(".")
        raise ExportError(
            f"The model {getattr(model, 'name', model)!r} could not be exported as {form.name}: "
            f"{type(error).__name__}, {said}. Nothing was written. Try another format, or export a part of the model."
        ) from error


def require_float_weights(model, form):
    """Refuses a model that `keras.Model.quantize` has changed where the format quantizes by itself."""
    modes = {getattr(layer, "quantization_mode", None) for layer in model._flatten_layers()} - {None}
    if modes and "int8" in form.kinds:
        raise ExportError(
            f"The model {model.name!r} was quantized by Keras ({', '.join(sorted(modes))}), which {form.name} cannot "
            'hold. Export the model as it was before model.quantize, with quantize="int8" or "dynamic"; a SavedModel '
            "takes it as it is."
        )


def require_endpoints(form, model, endpoints):
    """The further argument of a format's `write` that says them; none where there are none."""
    for name in endpoints:
        if form.name != "saved_model":
            raise ExportError(f"Only a SavedModel can have further endpoints. Received: {name!r} for {form.name}.")
        if not callable(getattr(model, name, None)):
            raise ExportError(f"The model {model.name!r} has no method {name!r} to serve as an endpoint.")
    return {"endpoints": tuple(endpoints)} if endpoints else {}


def with_batch(shape, batch_size):
    if batch_size is not None and (shape[0] not in (None, batch_size) or batch_size < 1):
        raise ExportError(
            f"The model's batch is {shape[0]}. Received: batch_size={batch_size}; expected that, or None."
        )
    return (batch_size or shape[0], *shape[1:])


def probe_count(kind, batch_size):
    """Pictures of the proof, whole batches where the batch is fixed."""
    count = PROBES if kind.name is None else QUANTIZED_PROBES
    return count if batch_size is None else max(count // batch_size, 1) * batch_size


def model_preprocessing(model):
    return getattr(model, "preprocessing", None)


def format_of(path):
    suffix = Path(path).suffix.lower()
    for form in FORMATS:
        if form.suffix == suffix:
            return form
    raise ExportError(
        f"No format is written as *{printable(suffix)}. Expected a path that ends in .onnx or .tflite, or, for the "
        f"folder of a SavedModel, one without a suffix. Received: {printable(path)}."
    )


def runner(model):
    """The model at inference as a function from a list of arrays to the list of outputs."""

    def run(inputs):
        return [
            keras.ops.convert_to_numpy(x) for x in keras.tree.flatten(model(arguments(model, inputs), training=False))
        ]

    return run


def compared(source, form, path, inputs, sizes):
    """The difference between the model and its artefact at `path`, which runs in batches of `sizes`."""
    expected = in_batches(runner(source), inputs, (8,))
    return difference(expected, in_batches(form.module.load(path, names_of(source)), inputs, sizes))


def names_of(model):
    return [x.name for x in model.inputs]


def require_parity(found, form, kind, source, shapes, inputs, sizes):
    """Raises unless the difference is within bounds; not-a-number never is.

    Outputs that are the same for every picture, such as those of a new zero head, prove nothing: then the output of
    every layer is compared instead.
    """
    broken = kind.broken_bounds(found)
    if not broken and (found.varies or kind.calibrated):
        return
    layer = first_differing_layer(form, kind, source, shapes, inputs, sizes)
    if not broken and layer is None:
        return
    where = (
        ""
        if layer is None
        else f" The first layer whose output differs is {layer[0]!r} (by {layer[1]:.2e} of its largest)."
    )
    raise ParityError(
        f"The {form.name} artefact is not the model: its outputs differ by up to {found.max_abs_diff:.2e}. "
        f"{'; '.join(broken) or 'All outputs are the same for every image, and those of its layers are not'}."
        f"{where} Nothing was written."
    )


def has_one_output(layer):
    """Whether the layer computes one tensor at one place of the model."""
    nodes = layer._inbound_nodes
    return not isinstance(layer, keras.layers.InputLayer) and len(nodes) == 1 and len(nodes[0].outputs) == 1


def first_differing_layer(form, kind, source, shapes, inputs, sizes):
    """The first layer whose output differs in an artefact of this format: (name, relative difference), or None."""
    layers = [layer for layer in source.layers if has_one_output(layer)]
    every = keras.Model(source.input, [layer.output for layer in layers])
    few = [x[:PROBES] for x in inputs]
    calibration = dict(zip(names_of(source), inputs, strict=True)) if kind.calibrated else None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"layers{form.suffix}"
        form.module.write(every, shapes, path, {}, kind.name, calibration)
        expected = in_batches(runner(every), few, (8,))
        received = in_batches(form.module.load(path, names_of(source)), few, sizes)
    for layer, a, b in zip(layers, expected, received, strict=True):
        found = difference([a], [b])
        if kind.broken_bounds(dataclasses.replace(found, top1_regret=None)):
            return layer.name, found.max_rel_diff
    return None


def latencies(source, form, path, inputs, sizes):
    """Milliseconds a batch of 1 and of 8, median of five, of the artefact and of the model as a TensorFlow function."""
    import tensorflow as tf

    original = tf.function(lambda *x: source(arguments(source, x), training=False), reduce_retracing=True)
    runs = {
        "latency_ms": form.module.load(path, names_of(source)),
        "model_latency_ms": lambda inputs: [np.asarray(y) for y in keras.tree.flatten(original(*inputs))],
    }
    batches = (1, 8) if sizes == BATCHES else sizes
    return {name: {n: milliseconds(run, [x[:n] for x in inputs]) for n in batches} for name, run in runs.items()}


def milliseconds(run, inputs):
    run(inputs)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        run(inputs)
        times.append(1e3 * (time.perf_counter() - start))
    return round(statistics.median(times), 2)
