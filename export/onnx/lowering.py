"""From a traced Keras model to an ONNX graph: each step through the emitter of its operation."""

import keras
import numpy as np

from keras_vit.export.onnx.emit import LAYERS, OPERATIONS, is_leaf
from keras_vit.export.onnx.graph import Graph, Value
from keras_vit.export.onnx.trace import Untraceable, trace


class Unsupported(Exception):
    """A step that no emitter can write; the message names the layer and the operation."""


def name_outputs(graph, inputs, outputs):
    """Outputs with names of their own, channels last: neither an input's, nor one another's."""
    taken, results = {x.name for x in inputs}, []
    for x in outputs:
        if not isinstance(x, Value):
            raise Unsupported("an output that does not depend on the input")
        x = graph.channels_last(x)
        if x.name in taken:
            x = graph.add("Identity", [x], x.shape, x.dtype)
        taken.add(x.name)
        results.append(x)
    return results


def output_names(model):
    """The names of the outputs, in the order in which Keras flattens a dictionary of them; None where there is none."""
    return sorted(model.output) if isinstance(model.output, dict) else [None] * len(model.outputs)


def stand_in(model, input_shapes):
    """A length for the free batch while tracing: it has no divisors below 60, and divides no length of the model.

    Any traced length that it divides then holds the batch, as in (n, l, d) reshaped to (n * l, d), where Keras' own
    None would be lost.
    """
    lengths = {n for w in model.weights for n in w.shape} | {n for shape in input_shapes for n in shape if n}
    candidate = 1009
    while any(candidate % d == 0 for d in range(2, 60)) or any(n % candidate == 0 for n in lengths):
        candidate += 2
    return candidate


def as_array(x):
    """Weights and tensors of any backend as NumPy arrays, without a copy where that can be; anything else as it is."""
    if isinstance(x, keras.Variable):
        x = x.value
    if not keras.ops.is_tensor(x):
        return x
    return np.asarray(x) if keras.backend.backend() == "tensorflow" else keras.ops.convert_to_numpy(x)


def share_by_batch(x, batch):
    """A constant repeated for every image of the stand-in batch, once."""
    if not isinstance(x, np.ndarray) or x.ndim < 2 or x.shape[0] != batch:
        return x
    if (x == x[:1]).all():
        return x[:1]
    raise Unsupported("a constant that differs from image to image")


class Lowering:
    """Values by the id of the traced tensor they stand for."""

    def __init__(self, graph, inner_output, values):
        self.graph = graph
        self.inner_output = inner_output
        self.values = values

    def run(self, step):
        args, kwargs = keras.tree.map_structure(self.value, (step.args, step.kwargs))
        self.graph.path = step.path.strip("/")
        results = self.emit(step, args, kwargs)
        if len(results) != len(step.outputs):
            raise Unsupported(f"{len(results)} of {len(step.outputs)} outputs of {type(step.operation).__name__}")
        for x, value in zip(step.outputs, results, strict=True):
            self.values[id(x)] = value

    def value(self, x):
        """The Value of a traced tensor; weights and tensors computed from them as arrays, anything else as it is."""
        while id(x) in self.inner_output:
            x = self.inner_output[id(x)]
        if isinstance(x, keras.KerasTensor):
            return self.values[id(x)]
        return share_by_batch(as_array(x), self.graph.batch)

    def emit(self, step, args, kwargs):
        operation = step.operation
        name = type(operation).__name__
        where = step.path.strip("/") or "no layer"
        tensors = [x for x in keras.tree.flatten((args, kwargs)) if isinstance(x, Value)]
        if not tensors and step.args:  # an operation on constants is computed now
            return [as_array(x) for x in keras.tree.flatten(operation(*args, **kwargs))]
        rows = LAYERS if isinstance(operation, keras.Layer) else OPERATIONS
        if name not in rows:
            raise Unsupported(f"operation {name} in layer {where}")
        if isinstance(operation, keras.Layer):
            args, kwargs = args[:1], {name: x for name, x in kwargs.items() if name not in ("mask", "training")}
        out = step.outputs if len(step.outputs) > 1 or name in ("Split", "Unstack") else step.outputs[0]
        try:
            result = rows[name].emit(self.graph, operation, out, *args, **kwargs)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise Unsupported(f"{name} in layer {where}: {error}") from error
        return list(result) if isinstance(result, list | tuple) else [result]


def lower(model, input_shapes, endpoints=()):
    """The graph of `model`, with its inputs and outputs as Values.

    Args:
        model: a built keras.Model in float32.
        input_shapes: one shape per input, None for a free length; a free batch comes first.
        endpoints: a further output, see `formats`.

    Returns:
        (graph, inputs, outputs)
    """
    batch = stand_in(model, input_shapes)
    tensors = [
        keras.KerasTensor((batch if shape[0] is None else shape[0], *shape[1:]), dtype=x.dtype, name=x.name)
        for shape, x in zip(input_shapes, model.inputs, strict=True)
    ]
    try:
        traced, results = trace(model, tensors, is_leaf, *(getattr(model, f"with_{name}") for name in endpoints))
    except Untraceable as error:
        raise Unsupported(str(error)) from error
    graph = Graph(batch)
    inputs = [
        Value(graph.unique(own.name), tuple(x.shape), x.dtype) for own, x in zip(model.inputs, tensors, strict=True)
    ]
    lowering = Lowering(graph, traced.inner_output, dict(zip(map(id, tensors), inputs, strict=True)))
    traced.steps.reverse()
    while traced.steps:  # each step is freed as soon as it is written, with the weights that it alone holds
        lowering.run(traced.steps.pop())
    graph.path = ""
    outputs = name_outputs(graph, inputs, [lowering.value(x) for x in results])
    names = [*output_names(model), *endpoints]
    return graph, inputs, [graph.rename(x, name) if name else x for x, name in zip(outputs, names, strict=True)]
