"""Lowers a Keras model to an ONNX graph: an emitter writes each traced operation."""

import keras
import numpy as np

from keras_vit.export.onnx.emit import LAYERS, OPERATIONS
from keras_vit.export.onnx.graph import Graph, Value
from keras_vit.export.onnx.trace import Unsupported, trace


def name_outputs(graph, inputs, outputs):
    """Gives outputs, channels last, names that no input and no other output has."""
    taken, results = {x.name for x in inputs}, []
    for x in outputs:
        if not isinstance(x, Value):
            raise Unsupported("an output that does not depend on the input")
        x = graph.channels_last(x)
        if x.name in taken:
            x = graph.add_like("Identity", x)
        taken.add(x.name)
        results.append(x)
    return results


def stand_in(model, input_shapes):
    """A length that represents the free batch while tracing. It has no divisor below 60 and divides no length of the
    model. So if it divides a traced length, that contains the batch, as in (n, l, d) reshaped to (n * l, d). Keras'
    None would be lost there.
    """
    lengths = {n for w in model.weights for n in w.shape} | {n for shape in input_shapes for n in shape if n}
    candidate = 1009
    while any(candidate % d == 0 for d in range(2, 60)) or any(n % candidate == 0 for n in lengths):
        candidate += 2
    return candidate


def as_array(x):
    """Converts weights and tensors of any backend to NumPy arrays, without a copy if possible; others stay."""
    if isinstance(x, keras.Variable):
        x = x.value
    if not keras.ops.is_tensor(x):
        return x
    return np.asarray(x) if keras.backend.backend() == "tensorflow" else keras.ops.convert_to_numpy(x)


def share_by_batch(x, batch):
    """Reduces a constant that is repeated for every image of the stand-in batch to a single one."""
    if not isinstance(x, np.ndarray) or x.ndim < 2 or x.shape[0] != batch:
        return x
    if (x == x[:1]).all():
        return x[:1]
    raise Unsupported("a constant that differs from image to image")


class Lowering:
    """Writes traced operations into the graph; `values` maps ids of traced tensors to their Values."""

    def __init__(self, graph, values):
        self.graph = graph
        self.values = values

    def value(self, x):
        """The Value of a traced tensor; an array for weights and tensors computed from them; anything else stays."""
        if isinstance(x, keras.KerasTensor):
            return self.values[id(x)]
        return share_by_batch(as_array(x), self.graph.batch)

    def write(self, operation, args, kwargs, outputs, path):
        """See `Tracer`."""
        self.graph.path = path.strip("/")
        args, kwargs = keras.tree.map_structure(self.value, (args, kwargs))
        results = self.emit(operation, args, kwargs, outputs)
        if len(results) != len(outputs):
            raise Unsupported(f"{len(results)} of {len(outputs)} outputs of {type(operation).__name__}")
        self.values.update(zip(map(id, outputs), results, strict=True))

    def emit(self, operation, args, kwargs, outputs):
        name, where = type(operation).__name__, self.graph.path or "no layer"
        tensors = [x for x in keras.tree.flatten((args, kwargs)) if isinstance(x, Value)]
        if not tensors and args:  # an operation on constants is computed now
            return [as_array(x) for x in keras.tree.flatten(operation(*args, **kwargs))]
        rows = LAYERS if isinstance(operation, keras.Layer) else OPERATIONS
        if name not in rows:
            raise Unsupported(f"operation {name} in layer {where}")
        if isinstance(operation, keras.Layer):
            args, kwargs = args[:1], {name: x for name, x in kwargs.items() if name not in ("mask", "training")}
        out = outputs if len(outputs) > 1 or name in ("Split", "Unstack") else outputs[0]
        try:
            result = rows[name].emit(self.graph, operation, out, *args, **kwargs)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise Unsupported(f"{name} in layer {where}: {error}") from error
        return list(result) if isinstance(result, list | tuple) else [result]


def lower(model, input_shapes, endpoints=()):
    """Makes the graph of `model`, with its inputs and outputs as Values.

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
    graph = Graph(batch)
    inputs = [
        Value(graph.unique(own.name), tuple(x.shape), x.dtype) for own, x in zip(model.inputs, tensors, strict=True)
    ]
    lowering = Lowering(graph, dict(zip(map(id, tensors), inputs, strict=True)))
    results = trace(model, tensors, lowering.write, *(getattr(model, f"with_{name}") for name in endpoints))
    graph.path = ""
    outputs = name_outputs(graph, inputs, [lowering.value(x) for x in results])
    # In the order in which Keras flattens a dictionary of outputs.
    names = sorted(model.output) if isinstance(model.output, dict) else [None] * len(model.outputs)
    names += endpoints
    return graph, inputs, [graph.rename(x, name) if name else x for x, name in zip(outputs, names, strict=True)]
