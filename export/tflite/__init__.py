"""TFLite files with built-in operators only, converted in a separate process so that its memory is freed.

TensorFlow's models are converted from a SavedModel, JAX's from StableHLO. Operations that TFLite lacks are first
rewritten with those that it has. Swin needs two: windows are shifted by a roll, and cut out of the image by transposes
of up to eight axes.
"""

import math
import tempfile
from pathlib import Path
from typing import Any

from keras_vit.errors import ExportError, require_backend
from keras_vit.export import saved_model, stablehlo
from keras_vit.export.description import append_comment, append_description
from keras_vit.export.formats import Order
from keras_vit.export.preparation import TRACING, follow_export_calls, replaced
from keras_vit.export.staging import seal
from keras_vit.export.tflite.converter import convert
from keras_vit.export.tflite.rewriting import SIZES
from keras_vit.extras import require

__all__ = ["write"]

MOST_AXES = 6  # of a tensor that TFLite's Transpose takes


def builtin_roll(x, shift, axis, name=None):
    """Replaces tf.roll: moves the last `shift` places of each axis before the others."""
    import tensorflow as tf

    shifts, axes = (list(n) if isinstance(n, list | tuple) else [n] for n in (shift, axis))
    for places, along in zip(shifts, axes, strict=True):
        length = x.shape[along]
        places = places % length
        if places:
            rest, end = tf.split(x, [length - places, places], axis=along)
            x = tf.concat([end, rest], axis=along)
    return tf.identity(x, name=name)


def group_neighbours(perm):
    """Groups axes that are neighbours before and after: (0, 3, 1, 2) -> [[0], [3], [1, 2]]."""
    groups = [[perm[0]]]
    for axis in perm[1:]:
        if axis == groups[-1][-1] + 1:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups


def volume(lengths):
    """The number of places along several axes; None if a length is unknown."""
    return None if None in lengths else math.prod(lengths)


def to_shape(lengths):
    """A shape for tf.reshape; it accepts one unknown length, -1."""
    return [-1 if n is None else n for n in lengths]


def transpose_in_steps(transpose, x, perm):
    """Transposes many axes by transposes of few: axes that stay neighbours count as one."""
    import tensorflow as tf

    target = [x.shape[axis] for axis in perm]
    groups = group_neighbours(perm)
    while len(groups) > MOST_AXES:
        # Move one axis to its place: the axes before, those it passes, itself and the rest count as four axes.
        place = next(i for i, axis in enumerate(perm) if axis != i)
        source = perm[place]
        four = [x.shape[:place], x.shape[place:source], x.shape[source : source + 1], x.shape[source + 1 :]]
        moved = [*x.shape[:place], x.shape[source], *x.shape[place:source], *x.shape[source + 1 :]]
        x = tf.reshape(transpose(tf.reshape(x, to_shape(map(volume, four))), (0, 2, 1, 3)), to_shape(moved))
        perm = [axis + 1 if place <= axis < source else axis for axis in perm]
        perm[place] = place
        groups = group_neighbours(perm)
    order = sorted(groups)
    x = tf.reshape(x, to_shape([volume([x.shape[axis] for axis in group]) for group in order]))
    return tf.reshape(transpose(x, [order.index(group) for group in groups]), to_shape(target))


def builtin_operators():
    """A context in which keras.ops.roll and keras.ops.transpose trace to operators that TFLite has. Keras looks both
    functions up in the module `tensorflow` at each call. The replacements compute the same, so other threads may use
    them, too.
    """
    import tensorflow as tf

    transpose = tf.transpose

    def builtin_transpose(a, perm=None, *args, **kwargs):
        many = perm is not None and len(perm) > MOST_AXES and list(a.shape).count(None) <= 1
        return transpose_in_steps(transpose, a, list(perm)) if many else transpose(a, perm, *args, **kwargs)

    return replaced(tf, roll=builtin_roll, transpose=builtin_transpose)


def composite_gelu():
    """A context in which exact GELU traces from JAX to one operator, not to polynomials of its error function."""
    import jax

    gelu = jax.nn.gelu

    def exact(x, approximate):
        return gelu(x, approximate=False)

    def builtin_gelu(x, approximate=True):
        return gelu(x) if approximate else jax.lax.composite(exact, "aten.gelu.default")(x, approximate="none")

    return replaced(jax.nn, gelu=builtin_gelu)


def emit_saved_model(order, folder):
    with builtin_operators():
        saved = Order(model=order.model, shapes=order.shapes)
        saved_model.write(saved, folder / "model", further_outputs=order.endpoints)
    return {"saved_model": str(folder / "model")}


def emit_stablehlo(order, folder):
    """Writes StableHLO at one batch size, or at the two for `rewriting.free_batch`."""
    require("litert_converter", "TFLite from JAX")
    files = []
    for size in SIZES if order.shapes[0][0] is None else order.shapes[0][:1]:
        fixed = Order(
            model=order.model, shapes=[(size, *shape[1:]) for shape in order.shapes], endpoints=order.endpoints
        )
        with composite_gelu():
            traced = stablehlo.trace(fixed, ["cpu"])
        files.append(folder / f"{size}.mlir")
        files[-1].write_bytes(traced.mlir_module_serialized)
    outputs = [f"output_{i}" for i in range(len(order.model.outputs))]
    names = {"inputs": [x.name for x in order.model.inputs], "outputs": [*outputs, *order.endpoints]}
    return {"stablehlo": [str(file) for file in files], **names}


EMITTERS: dict[str, Any] = {"tensorflow": emit_saved_model, "jax": emit_stablehlo}


def write(order: Order, path: Path) -> dict[str, str]:
    """Writes the file `path`; in TFLite only the batch can be free."""
    import keras

    require_backend("Writing TFLite", *EMITTERS, error=ExportError)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        with TRACING, follow_export_calls(order.model):
            job = EMITTERS[keras.backend.backend()](order, Path(folder))
        require("litert_quantizer", "TFLite")
        finer = convert(job, Path(folder), path, order)
    append_description(path, order.description)
    seal(path, append_comment)
    return finer
