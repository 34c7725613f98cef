"""StableHLO: the model's forward pass, serialized by `jax.export`, for JAX on CPUs, GPUs and TPUs, without Keras.

A file from elsewhere may be opened if it has only StableHLO's operations, and calls no code of its runtime's process.
"""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from keras_vit.export.description import append_comment, append_description, read_description
from keras_vit.export.formats import Order, refuse
from keras_vit.export.staging import seal

__all__ = ["check", "load", "load_stablehlo", "read_description", "weight_bytes", "write"]

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
# A call that JAX writes and that runs no function of the process: it tests the input's shape.
HARMLESS = {"shape_assertion"}
REFUSED = {f"stablehlo.{name}" for name in ("infeed", "outfeed", "send", "recv")}
DIALECTS = ("builtin", "func", "stablehlo")


def make_forward(model, further_outputs):
    """A function of the model's inputs, one argument each, to the list of outputs at inference, for JAX to trace.

    Its weights are constants, independent of the devices of the model's weights.
    """
    import keras

    from keras_vit.export.preparation import pack_inputs

    call = getattr(model, f"with_{further_outputs[0]}") if further_outputs else model
    values = [(x, keras.ops.convert_to_numpy(x)) for x in model.variables]

    def forward(*inputs):
        with keras.StatelessScope(values):
            packed = pack_inputs(model, inputs)
            return keras.tree.flatten(call(packed) if further_outputs else call(packed, training=False))

    return forward


def trace(order: Order, platforms: Sequence[str] = PLATFORMS):
    """The order's model as a jax.export.Exported; free lengths are symbols, and all inputs share that of the batch."""
    import jax.export
    import keras

    scope, number = jax.export.SymbolicScope(), itertools.count()

    def to_symbols(shape):
        lengths = [n or (f"length_{next(number)}" if i else "batch") for i, n in enumerate(shape)]
        return jax.export.symbolic_shape(", ".join(map(str, lengths)), scope=scope)

    inputs = [
        jax.ShapeDtypeStruct(to_symbols(shape), x.dtype)
        for shape, x in zip(order.shapes, order.model.inputs, strict=True)
    ]
    distribution = keras.distribution.distribution()
    keras.distribution.set_distribution(None)  # an artefact is for one device
    try:
        forward = jax.jit(make_forward(order.model, order.endpoints))
        return jax.export.export(forward, platforms=platforms)(*inputs)
    finally:
        keras.distribution.set_distribution(distribution)


def write(order: Order, path: Path) -> dict[str, str]:
    """Writes the file `path` for `jax.export.deserialize`."""
    path.write_bytes(trace(order).serialize())
    append_description(path, order.description)
    seal(path, append_comment)
    return {}


def load_stablehlo(path, names=None):
    """A function from a list of arrays to the list of outputs, compiled once for each shape."""
    import jax.export

    compiled = jax.jit(jax.export.deserialize(bytearray(Path(path).read_bytes())).call)
    return lambda inputs: [np.asarray(x) for x in jax.tree.leaves(compiled(*inputs))]


load = load_stablehlo


def operations_of(path):
    """Every operation of the file."""
    import jax.export
    from jax.extend.mlir import ir
    from jax.extend.mlir.dialects import stablehlo

    found = []

    def see(operation):
        found.append(operation)
        return ir.WalkResult.ADVANCE

    exported = jax.export.deserialize(bytearray(path.read_bytes()))
    with ir.Context() as context:
        stablehlo.register_dialect(context)
        module = stablehlo.deserialize_portable_artifact(context, exported.mlir_module_serialized)
        module.operation.walk(see)
        yield from found


def check(path):
    for operation in operations_of(path):
        name = operation.name
        if name.partition(".")[0] not in DIALECTS or name in REFUSED:
            refuse(path, f"the operation {name}, which an export does not write")
        if name == "stablehlo.custom_call" and operation.attributes["call_target_name"].value not in HARMLESS:
            refuse(path, f"a call of {operation.attributes['call_target_name'].value}, code outside the file")


def width_of(kind):
    """Bits of a number; a complex one is of two."""
    return kind.width if hasattr(kind, "width") else 2 * kind.element_type.width


def weight_bytes(path: Path) -> int:
    """Bytes of the constants in the file."""
    total = 0
    for operation in operations_of(path):
        if operation.name == "stablehlo.constant":
            kind = operation.results[0].type
            total += math.prod(kind.shape) * width_of(kind.element_type) // 8
    return total
