"""Tries exports of a model by Keras and by this package, each as its user would: the work of `keras-vit doctor`.

The functions that take a `Patient` open its model themselves, so that they can run in a separate process.
"""

import contextlib
import dataclasses
import functools
import importlib
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np

from keras_vit.errors import ConfigError, ExportError, KerasVitError, ParityError, describe_unknown
from keras_vit.export.conversion import convert
from keras_vit.export.formats import format_named
from keras_vit.export.preparation import Source, pack_inputs, prepare
from keras_vit.export.processes import run_in_batches
from keras_vit.export.proof.comparison import Trial, compiled_runner, list_outputs, median_milliseconds
from keras_vit.export.proof.parity import choose_kind, compare_outputs
from keras_vit.export.report import size_of

KERAS, OURS = "Keras", "keras-vit"
KERAS_FORMATS = {"onnx": "onnx", "tflite": "litert", "saved_model": "tf_saved_model", "openvino": "openvino"}
LONGEST = 300  # characters of an error
INSTALL = "Install the package that brings it, or go to the folder that it is in."


@dataclass(frozen=True)
class Patient:
    """A model, given by the path of its .keras file or as "package.module:function"; it needs the modules `imports`."""

    name: str
    imports: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finding:
    """The result of one export; `error` and `layer` are sentences on the fault, and on the first layer that has it.

    Args:
        result: "right", "differs", "does not run", "does not load", "is not written" or "broken off".
        difference: the largest difference, over the largest output.
        nodes: number of operations in an ONNX or TFLite file.
        milliseconds: for the smallest batch.
    """

    format: str
    by: str
    result: str
    difference: float | None = None
    bytes: int | None = None
    nodes: int | None = None
    milliseconds: float | None = None
    error: str | None = None
    layer: str | None = None


def first_sentence(error: Exception) -> str:
    """Describes an error of any library in a sentence; if Keras wraps one, the inner error.

    >>> first_sentence(ValueError("Exception encountered when calling A.call().\\n\\n\\x1b[1mNo. Never.\\x1b[0m"))
    'ValueError: No.'
    >>> first_sentence(AssertionError())
    'AssertionError.'
    """
    paragraphs = re.sub(r"\x1b\[[\d;]*m", "", str(error)).strip().split("\n\n")
    wrapped = paragraphs[0].startswith("Exception encountered") and len(paragraphs) > 1
    line = re.sub(r"(?<![\w/])/\S+/(?=[^/\s])", "", paragraphs[wrapped].strip().partition("\n")[0])  # without folders
    sentence = re.split(r"(?<=[.!?]) ", line)[0][:LONGEST].rstrip(".") + "."
    return sentence if isinstance(error, KerasVitError) else f"{type(error).__name__}{': ' * bool(line)}{sentence}"


@contextlib.contextmanager
def advise(what, advice):
    """A context that turns an error of any library into a ConfigError on what failed, and what to do."""
    try:
        yield
    except KerasVitError:
        raise
    except Exception as error:
        advice = INSTALL if isinstance(error, ModuleNotFoundError) else advice
        raise ConfigError(f"{what}: {first_sentence(error)} {advice}") from error


def import_named(name):
    with advise(f"{name} cannot be imported", "Mend it first."):
        return importlib.import_module(name)


def build_by_function(name):
    place, _, function = name.partition(":")
    module = import_named(place)
    if not hasattr(module, function):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise ConfigError(describe_unknown(f"function in {place}", function, known))
    with advise(f"{name} failed", "Expected a function without arguments that returns a keras.Model."):
        return getattr(module, function)()


@functools.cache
def open_patient(patient: Patient) -> Source:
    """Opens its model, with the same random weights at every call; KerasVitError if there is none."""
    keras.utils.set_random_seed(0)
    for name in patient.imports:
        import_named(name)
    if not patient.name.endswith(".keras"):
        return prepare(build_by_function(patient.name))
    advice = (
        "If it has layers of another package, add --import PACKAGE. Code in a file, such as a Lambda, is never run: "
        "give a function that builds the model, package.module:function."
    )
    with advise(f"{patient.name} cannot be loaded", advice):
        return prepare(keras.saving.load_model(patient.name, compile=False, safe_mode=True))


def describe(patient: Patient) -> dict:
    """{"parameters": their number}; if there is no model, {"refused": the reason}."""
    try:
        return {"parameters": open_patient(patient).functional.count_params()}
    except KerasVitError as error:
        return {"refused": str(error)}


def measure(patient: Patient) -> dict:
    """The compiled model's "milliseconds" for the smallest batch, and "rounding": its difference from the model that is
    called directly, over the largest output.
    """
    trial = make_trial(open_patient(patient), "onnx")
    run, inputs = compiled_runner(trial.model), [x[: trial.batches[0]] for x in trial.inputs]
    return {"milliseconds": median_milliseconds(run, inputs), "rounding": measure_rounding(trial)}


def measure_rounding(trial):
    found = run_in_batches(compiled_runner(trial.model), trial.inputs, trial.batches)
    return compare_outputs(trial.expected, found).max_rel_diff


def make_trial(source, format_name):
    form = format_named(format_name)
    return Trial(source, form, choose_kind(None, form), ())


def open_file(trial, by, path):
    """Opens a file as a function from a list of arrays to the list of outputs."""
    model, names = trial.model, trial.input_names()
    if (by, trial.form.name) == (KERAS, "saved_model"):  # takes the inputs in one structure
        import tensorflow as tf

        loaded = tf.saved_model.load(str(path))
        return lambda inputs: [np.asarray(x) for x in tf.nest.flatten(loaded.serve(pack_inputs(model, inputs)))]
    return trial.form.load_reader().load(path, names if len(names) > 1 else None)


def look_into(format_name, path):
    """(number of operations, also in inner graphs; names of the inputs) of a file; None if its format has none."""
    if format_name == "onnx":
        import onnx

        from keras_vit.export.onnx.reading import graphs_in

        proto = onnx.load(path, load_external_data=False)
        nodes = sum(len(part.node) for part in (*graphs_in(proto.graph), *proto.functions))
        return nodes, [x.name for x in proto.graph.input]
    if format_name == "tflite":
        from ai_edge_litert import schema_py_generated as schema

        model = schema.Model.GetRootAs(path.read_bytes())
        return sum(model.Subgraphs(i).OperatorsLength() for i in range(model.SubgraphsLength())), None
    return None, None


def examine(source: Source, format_name: str, by: str, path: str) -> Finding:
    """Exports a model to `path`, opens the file in its own runtime and compares their outputs."""
    found, place = Finding(format_name, by, "is not written"), Path(path)
    try:
        trial = make_trial(source, format_name)
        expected = trial.expected  # before the export: Keras refuses it for a model that was never called
        if by == OURS:
            convert(source.model, path)
        else:
            source.model.export(path, format=KERAS_FORMATS[format_name], verbose=False)
        nodes, wanted = look_into(format_name, place)
        found = dataclasses.replace(found, result="does not load", bytes=size_of(place), nodes=nodes)
        run = open_file(trial, by, place)
        found = dataclasses.replace(found, result="does not run")
        if wanted and len(wanted) != len(trial.inputs):
            names = ", ".join(trial.input_names())
            raise ExportError(f"The model takes {names}, but the file takes {', '.join(wanted)}.")
        difference = compare_outputs(expected, run_in_batches(run, trial.inputs, trial.batches))
        broken, inputs = trial.kind.broken_bounds(difference), [x[: trial.batches[0]] for x in trial.inputs]
        found = dataclasses.replace(found, milliseconds=median_milliseconds(run, inputs))
        same = None if difference.varies or by == OURS else "Its outputs are equal for all inputs: this proves little."
        result, error = ("differs", f"{'; '.join(broken)}.".capitalize()) if broken else ("right", same)
        return dataclasses.replace(found, difference=difference.max_rel_diff, result=result, error=error)
    except Exception as error:  # of any library
        result = "differs" if isinstance(error, ParityError) else found.result
        return dataclasses.replace(found, result=result, error=first_sentence(error))


def examine_patient(
    patient: Patient, format_name: str, by: str, path: str | None = None, places: Sequence[int] = ()
) -> Finding:
    """`examine` for its model, or for the part up to `places`, see `cut`; without `path` the file is not kept."""
    source = open_patient(patient)
    try:
        source = prepare(cut(source.functional, places)) if places else source
    except Exception as error:  # a layer that is called again may raise any
        return Finding(format_name, by, "is not cut", error=first_sentence(error))
    with tempfile.TemporaryDirectory() as folder:
        return examine(source, format_name, by, path or str(Path(folder, f"model{format_named(format_name).suffix}")))


def cut(model, places: Sequence[int]) -> keras.Model:
    """Cuts the model after a layer. Its outputs are those that no layer in it uses.

    Args:
        places: the layer's place in `list_outputs`; for a layer of an inner model, that model's place, then its own.
    """
    layers = list_outputs(model)
    if len(places) == 1:
        kept = layers[: places[0] + 1]
        used = {id(x) for layer, _ in kept for node in layer._inbound_nodes for x in node.input_tensors}
        return keras.Model(model.input, [output for _, output in kept if id(output) not in used])
    inner, output = layers[places[0]]
    inputs = next(node.input_tensors for node in inner._inbound_nodes if node.outputs[0] is output)
    return keras.Model(model.input, cut(inner, places[1:])(pack_inputs(inner, inputs)))


def name_layer(patient: Patient, places: Sequence[int]) -> tuple[str, int]:
    """("'its name' (its class)", number of layers inside it after which `cut` can cut)."""
    layer = open_patient(patient).functional
    for place in places:
        layer = list_outputs(layer)[place][0]
    inside = isinstance(layer, keras.Model) and getattr(layer, "inputs", None)
    return f"{layer.name!r} ({type(layer).__name__})", len(list_outputs(layer)) if inside else 0


def find_wrong_layer(ask: Callable, patient: Patient, format_name: str, by: str) -> str:
    """Returns a sentence on the first layer up to which the export is wrong, found by halving; ExportError for none.

    `ask` calls one of the functions above, with its arguments, in another process.
    """
    before: tuple[int, ...] = ()
    count = ask(name_layer, patient, before)[1]

    def is_right(place):
        found = ask(examine_patient, patient, format_name, by, None, (*before, place))
        if found.result == "is not cut":
            raise ExportError(f"the model cannot be cut after a layer. {found.error}")
        return found.result == "right"

    if not count:
        raise ExportError("no layer is called at only one place.")
    if is_right(count - 1):
        return "No single layer is at fault: up to each of them the export is right."
    while count:
        low, high = 0, count - 1  # up to `high` it is not right
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if is_right(middle) else (low, middle)
        before = (*before, low)
        title, count = ask(name_layer, patient, before)
    return f"So it is from layer {title} on{'' if any(before) else ', the first'}."
