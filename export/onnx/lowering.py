"""Lowers a Keras model to an ONNX graph: traces its primitive operations in order, and an emitter writes each.

Calling a layer's `call` on symbolic tensors records the operations inside it. So any layer that is written with
keras.ops can be traced. Only operations on weights alone are computed.
"""

import contextlib
import inspect

import keras
import numpy as np
from keras import layers, ops

from keras_vit.export.onnx.emit import LAYERS, OPERATIONS, is_leaf
from keras_vit.export.onnx.graph import Graph, Value
from keras_vit.export.preparation import TRACING, pack_inputs, replaced


class Unsupported(Exception):
    """A layer cannot be traced, or no emitter can write an operation; the message names it."""


# Some layers of Keras have a `call` in code of the backend. It fails on symbolic tensors, so tracing uses these
# functions in keras.ops instead.


def batch_normalization(layer, x):
    """Normalizes by the moving moments. Keras' own call fails on symbolic tensors if only one of scale and center is
    set."""
    mean = np.asarray(layer.moving_mean)
    gamma = np.asarray(layer.gamma) if layer.scale else np.ones_like(mean)
    beta = np.asarray(layer.beta) if layer.center else np.zeros_like(mean)
    variance = np.asarray(layer.moving_variance)
    return ops.batch_normalization(x, mean, variance, layer.axis, offset=beta, scale=gamma, epsilon=layer.epsilon)


def rescaling(layer, x):
    return ops.add(ops.multiply(ops.cast(x, layer.compute_dtype), np.float32(layer.scale)), np.float32(layer.offset))


def normalization(layer, x):
    """(x - mean) / deviation; Keras keeps the deviation at or above its epsilon."""
    if layer.invert:
        raise ValueError("a Normalization layer with invert=True")
    deviation = np.maximum(np.sqrt(np.asarray(layer.variance)), keras.config.epsilon())
    return ops.divide(ops.subtract(ops.cast(x, layer.compute_dtype), np.asarray(layer.mean)), deviation)


def activation(layer, x):
    is_hard_silu = layer.activation is keras.activations.hard_silu
    return ops.hard_silu(x) if is_hard_silu else layer.activation(x)


# Augmentation inside a model changes images only in training. RandomCrop is left out here: it also resizes.
AUGMENTATIONS = [getattr(layers, name) for name in dir(layers) if name.startswith("Random") and name != "RandomCrop"]
CALLS = {
    layers.Activation: activation,
    layers.BatchNormalization: batch_normalization,
    layers.Normalization: normalization,
    layers.Rescaling: rescaling,
    **dict.fromkeys(AUGMENTATIONS, lambda layer, x: x),
}


def export_call(layer):
    """The function to trace for `layer`: its own `export_call`, with fewer operations, or a function above. A subclass
    of a layer above may compute something else, so its `call` is traced.
    """
    if hasattr(layer, "export_call"):
        return layer.export_call
    if type(layer) in CALLS:
        return lambda x, **kwargs: CALLS[type(layer)](layer, x)  # masks and `training` change nothing at inference
    return layer.call


@contextlib.contextmanager
def unrecorded(model):
    """A context that removes the nodes which tracing leaves on layers, since they make `layer.output` ambiguous.

    Keras has no public way to list or forget the calls of a layer (`_inbound_nodes`, `_outbound_nodes`), to list the
    layers inside others (`_flatten_layers`), or the operations between layers of a graph (`_operations`).
    """
    operations = {id(x): x for x in [model, *model._flatten_layers()]}
    for layer in list(operations.values()):
        operations.update((id(x), x) for x in getattr(layer, "_operations", []))
    lengths = [(x, len(x._inbound_nodes), len(x._outbound_nodes)) for x in operations.values()]
    try:
        yield
    finally:
        for operation, inbound, outbound in lengths:
            del operation._inbound_nodes[inbound:]
            del operation._outbound_nodes[outbound:]


def deferring(method):
    def infix(self, other):
        return NotImplemented if isinstance(other, keras.KerasTensor) else method(self, other)

    return infix


# Infix operations of keras.Variable; KerasTensor has these with exchanged operands.
INFIX = ("__add__", "__sub__", "__mul__", "__truediv__", "__matmul__", "__pow__")


def variables_that_defer():
    """A context that records `variable * x` for symbolic `x` like `x * variable`; Keras would fail to compute it."""
    return replaced(keras.Variable, **{name: deferring(getattr(keras.Variable, name)) for name in INFIX})


def at_inference(layer, call, kwargs):
    """Keyword arguments of a call at inference: `training` is False if `call` takes it, absent otherwise.

    A graph of layers would pass it to every layer, but some cannot take it on symbolic tensors. Each layer gets it when
    it is entered.
    """
    kwargs = {name: value for name, value in kwargs.items() if name != "training"}
    takes_training = "training" in inspect.signature(call).parameters and not hasattr(layer, "operations")
    return {**kwargs, "training": False} if takes_training else kwargs


def node_behind(x):
    """The node that computes a KerasTensor; None for an input. Only `_keras_history` has it."""
    history = getattr(x, "_keras_history", None)
    if history is None or history.operation is None:
        return None
    return history.operation._inbound_nodes[history.node_index]


def order_nodes(outputs, known):
    """The nodes between the tensors with ids in `known` and `outputs`, each after those it needs."""
    nodes, seen = [], set(known)
    stack = [(x, False) for x in reversed(outputs) if isinstance(x, keras.KerasTensor)]
    while stack:
        x, ready = stack.pop()
        if ready:
            nodes.append(node_behind(x))
        elif id(x) not in seen and node_behind(x) is not None:
            node = node_behind(x)
            seen.update(id(y) for y in node.outputs)
            stack.append((x, True))
            stack.extend((y, False) for y in reversed(node.input_tensors))
    return nodes


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
    """Traces a model's operations in order, and writes each into the graph.

    `values` maps the id of a traced tensor to its Value, `inside` the id of a layer's output to the tensor computed
    inside. `keep_alive` holds every tensor, so that no id is used again.
    """

    def __init__(self, graph, values):
        self.graph = graph
        self.values = values
        self.inside = {}
        self.keep_alive = []

    def enter(self, layer, call, args, kwargs, known, path):
        """Writes one call of `layer` by `call`; returns its outputs as a flat list."""
        try:
            outputs = keras.tree.flatten(call(*args, **at_inference(layer, call, kwargs)))
        # Code without keras.ops may raise anything for a symbolic tensor.
        except Exception as error:
            raise Unsupported(f"layer {path.strip('/') or layer.name} does more than keras.ops can trace") from error
        for node in order_nodes(outputs, known):
            self.visit(node, path)
        return [self.inner(x) for x in outputs]

    def visit(self, node, path):
        operation, called = node.operation, node.arguments
        args, kwargs = keras.tree.map_structure(self.inner, (called.args, called.kwargs))
        known = {id(self.inner(x)) for x in node.input_tensors}
        self.keep_alive += node.outputs
        node.arguments = None  # the node is kept, but not the values computed from weights
        inside = f"{path}/{operation.name}" if isinstance(operation, keras.Layer) else path
        if not isinstance(operation, keras.Layer) or is_leaf(operation):
            self.write(operation, args, kwargs, tuple(node.outputs), inside)
            return
        results = self.enter(operation, export_call(operation), args, kwargs, known, inside)
        self.inside.update((id(x), y) for x, y in zip(node.outputs, results, strict=True) if x is not y)
        self.keep_alive += results

    def inner(self, x):
        """The tensor inside the layer that returns `x`, with every length known.

        Other tensors become arrays, since TensorFlow returns no memory to the system.
        """
        x = self.inside.get(id(x), x)
        if isinstance(x, keras.KerasTensor | keras.Variable) or not ops.is_tensor(x):
            return x
        return ops.convert_to_numpy(x)

    def value(self, x):
        """The Value of a traced tensor; an array for weights and tensors computed from them; anything else stays."""
        if isinstance(x, keras.KerasTensor):
            return self.values[id(x)]
        return share_by_batch(as_array(x), self.graph.batch)

    def write(self, operation, args, kwargs, outputs, path):
        """Writes an operation, or a layer with `is_leaf(layer)`, that stands in the layer at `path`."""
        self.graph.path = path.strip("/")
        args, kwargs = keras.tree.map_structure(self.value, (args, kwargs))
        results = self.emit(operation, args, kwargs, outputs)
        if len(results) != len(outputs):
            raise Unsupported(f"{len(results)} of {len(outputs)} outputs of {type(operation).__name__}")
        self.values.update(zip(map(id, outputs), results, strict=True))

    def emit(self, operation, args, kwargs, outputs):
        name, path = type(operation).__name__, self.graph.path
        where = f"in layer {path}" if path else "outside the layers"
        tensors = [x for x in keras.tree.flatten((args, kwargs)) if isinstance(x, Value)]
        if not tensors and args:  # an operation on constants is computed now
            return [as_array(x) for x in keras.tree.flatten(operation(*args, **kwargs))]
        rows = LAYERS if isinstance(operation, keras.Layer) else OPERATIONS
        if name not in rows:
            raise Unsupported(f"operation {name} {where}")
        if isinstance(operation, keras.Layer):
            args, kwargs = args[:1], {name: x for name, x in kwargs.items() if name not in ("mask", "training")}
        out = outputs if len(outputs) > 1 or name in ("Split", "Unstack") else outputs[0]
        try:
            result = rows[name].emit(self.graph, operation, out, *args, **kwargs)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise Unsupported(f"{name} {where}: {error}") from error
        return list(result) if isinstance(result, list | tuple) else [result]


def lower(model, input_shapes, endpoints=()):
    """(graph, inputs, outputs) of a model: a Graph, and Values of it. For the arguments see `Order`."""
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
    call = getattr(model, f"with_{endpoints[0]}") if endpoints else export_call(model)
    with TRACING, unrecorded(model), variables_that_defer():
        results = lowering.enter(model, call, (pack_inputs(model, tensors),), {}, map(id, tensors), path="")
    graph.path = ""
    outputs = name_outputs(graph, inputs, [lowering.value(x) for x in results])
    # In the order in which Keras flattens a dictionary of outputs.
    named = isinstance(model.output, dict) and len(model.output) == len(model.outputs)
    names = sorted(model.output) if named else [None] * len(model.outputs)
    names += endpoints
    return graph, inputs, [graph.rename(x, name) if name else x for x, name in zip(outputs, names, strict=True)]
