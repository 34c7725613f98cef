"""StableHLO files from elsewhere, without Keras; see `formats`.

A file may be opened if it has only StableHLO's operations, and calls no code of its runtime's process.
"""

import math
from pathlib import Path

import numpy as np

from keras_vit.export.description import read_description
from keras_vit.export.formats import refuse

__all__ = ["check", "load", "load_stablehlo", "read_description", "weight_bytes"]

# A call that JAX writes and that runs no function of the process: it tests the input's shape.
HARMLESS = {"shape_assertion"}
REFUSED = {f"stablehlo.{name}" for name in ("infeed", "outfeed", "send", "recv")}
DIALECTS = ("builtin", "func", "stablehlo")


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


def weight_bytes(path: Path) -> int:
    """Bytes of the constants in the file."""
    total = 0
    for operation in operations_of(path):
        if operation.name == "stablehlo.constant":
            kind = operation.results[0].type
            total += math.prod(kind.shape) * kind.element_type.width // 8
    return total
