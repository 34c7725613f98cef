"""Maps official tensors to a model's variables, and fills a new model strictly with those of a checkpoint."""

import contextlib
import functools

import numpy as np

from keras_vit.errors import quote_some
from keras_vit.models.tensors import rows_of
from keras_vit.zoo.formats.checkpoint import Fault
from keras_vit.zoo.formats.names import AXES


def official_variables(model):
    """{official name: (variable, shape in the file)} of a model, in the order of the authors' files."""
    heads = getattr(model.config, "num_heads", None)
    layers, table = {layer.name: layer for layer in model.layers}, {}
    for name, path, leaves in rows_of(model.config):
        first, *rest = path.split(".")
        layer = layers.get(first)
        for attribute in rest:
            layer = getattr(layer, attribute, None)
        for leaf in leaves:
            variable = getattr(layer, leaf.attribute, None)
            if variable is not None:
                shape = AXES[leaf.axes].of_variable(tuple(variable.shape), heads)
                table[f"{name}/{leaf.name}".rstrip("/")] = variable, shape
    return table


def official_arrays(model):
    """{official name: array}, in the order and the shapes of the authors' files."""
    from keras import ops

    tensors = {}
    for name, (variable, shape) in official_variables(model).items():
        tensors[name] = np.asarray(ops.convert_to_numpy(variable), "float32").reshape(shape)
    return tensors


def is_under_strategy():
    import keras

    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return tf.distribute.has_strategy()


def list_names(kind, names):
    return f"{kind}: {quote_some(names, str)}" if names else ""


def require_fit(model_name, tensors, table, wanted):
    """Refuses tensors that differ from the table {name: (variable, shape)}, or that lack one of the names `wanted`."""
    misfits = [name for name in wanted if name in tensors and tensors[name].shape != table[name][1]]
    problems = (
        list_names("missing", [name for name in wanted if name not in tensors]),
        list_names("left over", [name for name in tensors if name not in table]),
        list_names(
            "of the wrong shape", [f"{name} (file {tensors[name].shape}, model {table[name][1]})" for name in misfits]
        ),
    )
    if any(problems):
        raise Fault(f"does not fit the model {model_name}. Tensors {'; '.join(filter(None, problems))}.")


def to_precision(values, dtype):
    """Converts values to a model's precision; those too large for it become infinite."""
    with np.errstate(over="ignore"):
        return values.astype(dtype, copy=False)


def require_finite(name, values):
    """Returns the values if all of them are finite numbers; raises a Fault otherwise."""
    if not np.isfinite(values).all():
        raise Fault(f"has values in {name} that are NaN, infinite or too large for {values.dtype}.")
    return values


def build_filled(make, tensors, fresh):
    """Builds a model by `make()`, with the values of tensors; names that begin with one of `fresh` keep their own.

    Variables get the values when all exist, so that no random values are drawn and no memory is used twice.
    """
    import keras

    deferred, failures = not is_under_strategy(), []  # under a strategy, Keras would create them outside its scope

    def first_value(name, shape, dtype):
        if not failures:
            try:
                return require_finite(name, to_precision(tensors[name].read(), dtype)).reshape(shape)
            except Exception as error:  # raised here, it would leave Keras with half of its variables
                failures.append(error)
        return np.zeros(shape, dtype)

    with keras.StatelessScope() if deferred else contextlib.nullcontext():
        model = make()
        table = official_variables(model)
        wanted = [name for name in table if not name.startswith(tuple(fresh))]
        require_fit(model.name, tensors, table, wanted)
        for name in wanted:
            variable, initializer = table[name][0], functools.partial(first_value, name)
            if deferred:
                variable._initializer = initializer  # a deferred variable's; Keras has no public way to change it
            else:
                variable.assign(initializer(variable.shape, variable.dtype))
    if failures:
        raise failures[0]
    return model
