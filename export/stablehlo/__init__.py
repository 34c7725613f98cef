"""StableHLO: the model's forward pass, serialized by `jax.export`, for JAX on CPUs, GPUs and TPUs, without Keras."""

import contextlib
import itertools
from collections.abc import Sequence
from pathlib import Path

from keras_vit.errors import ExportError, require_backend
from keras_vit.export.description import append_comment, append_description
from keras_vit.export.formats import Order
from keras_vit.export.preparation import pack_inputs
from keras_vit.export.staging import seal

__all__ = ["write"]

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


@contextlib.contextmanager
def undistributed():
    """A context in which Keras places nothing on several devices: an artefact is for one."""
    import keras

    found = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    try:
        yield
    finally:
        keras.distribution.set_distribution(found)


def make_forward(model, further_outputs=()):
    """A function of the model's inputs, one argument each, to the list of outputs at inference, for JAX to trace.

    Its weights are constants, independent of the devices of the model's weights.
    """
    import keras

    call = getattr(model, f"with_{further_outputs[0]}") if further_outputs else model
    values = [(x, keras.ops.convert_to_numpy(x)) for x in model.variables]

    def forward(*inputs):
        with keras.StatelessScope(values):
            packed = pack_inputs(model, inputs)
            return keras.tree.flatten(call(packed) if further_outputs else call(packed, training=False))

    return forward


def trace(order: Order, platforms: Sequence[str] = PLATFORMS):
    """The order's model as a jax.export.Exported; free lengths are symbols, and all inputs share that of the batch.

    Raises:
        ExportError: if Keras does not run on JAX.
    """
    require_backend("Writing StableHLO", "jax", error=ExportError)
    import jax.export

    scope, number = jax.export.SymbolicScope(), itertools.count()

    def to_symbols(shape):
        free = ["batch" if i == 0 else f"length_{next(number)}" for i, n in enumerate(shape) if n is None]
        symbols = iter(jax.export.symbolic_shape(", ".join(free), scope=scope) if free else ())
        return tuple(next(symbols) if n is None else n for n in shape)

    inputs = [
        jax.ShapeDtypeStruct(to_symbols(shape), x.dtype)
        for shape, x in zip(order.shapes, order.model.inputs, strict=True)
    ]
    with undistributed():
        forward = jax.jit(make_forward(order.model, order.endpoints))
        return jax.export.export(forward, platforms=platforms)(*inputs)


def write(order: Order, path: Path) -> dict[str, str]:
    """Writes the file `path` for `jax.export.deserialize`; see `formats` for the result."""
    path.write_bytes(trace(order).serialize())
    append_description(path, order.description)
    seal(path, append_comment)
    return {}
