"""What every layer and model must do, given only its constructor arguments and an input shape."""

import inspect
import subprocess
import sys

import keras
import numpy as np

from keras_vit.layers.base import ConfiguredLayer

BASE_ARGUMENTS = {"name", "trainable", "dtype"}

LOADER = """
import pathlib, sys
import numpy as np
import keras, keras_vit
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.keras")):
    model = keras.saving.load_model(path, safe_mode=True)
    outputs = model(np.load(path.with_suffix(".in.npy")), training=False)
    np.save(path.with_suffix(".out.npy"), keras.ops.convert_to_numpy(outputs))
"""


def inputs(shape, batch=2, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (batch, *shape)).astype("float32")


def made(cls, arguments, shape, **more):
    """The layer or model, built, with no variable at its initial zero."""
    keras.utils.set_random_seed(0)
    instance = cls(**arguments, **more)
    instance(inputs(shape))
    rng = np.random.default_rng(1)
    for variable in instance.trainable_variables:
        variable.assign(variable + rng.normal(0, 0.05, variable.shape))
    return instance


def as_model(instance, shape):
    """The instance itself if it is a model, else a model around it."""
    if isinstance(instance, keras.Model):
        return instance
    x = keras.Input(shape)
    y = keras.layers.Flatten()(instance(x))
    return keras.Model(x, keras.layers.Dense(3, dtype="float32")(y))


def own_arguments(cls):
    """{name: default} of the constructor's arguments that are not Keras' own, nor handed on by **kwargs."""
    if cls.__init__ is keras.layers.Layer.__init__:
        return {}
    parameters = getattr(cls, "__signature__", inspect.signature(cls.__init__)).parameters
    return {name: p.default for name, p in parameters.items() if name not in {"self", "kwargs", *BASE_ARGUMENTS}}


def all_arguments(cls):
    """Names of the arguments that a configuration holds: the class's own, and those of the layers that it extends."""
    extended = [base for base in cls.__mro__ if issubclass(base, ConfiguredLayer)]
    return {name for base in [cls, *extended] for name in own_arguments(base)}


def check_config(cls, arguments, shape):
    """The configuration is the constructor's arguments, with the values that were given, and makes the same again."""
    base = {"name": "another", "dtype": "mixed_bfloat16", "trainable": False}
    instance = cls(**arguments, **base)
    instance(inputs(shape))
    config = instance.get_config()
    assert set(config) == {*all_arguments(cls), *base}
    for name, value in arguments.items():
        assert config[name] == value, name
    assert config["name"] == "another" and config["trainable"] is False
    assert keras.dtype_policies.get(config["dtype"]).name == "mixed_bfloat16"
    again = cls.from_config(config)
    again(inputs(shape))
    assert again.get_config() == config and not any(weight.trainable for weight in again.weights)


def check_symbolic_equals_eager(cls, arguments, shape):
    instance = made(cls, arguments, shape)
    eager = keras.ops.convert_to_numpy(instance(inputs(shape)))
    symbolic = instance(keras.Input(shape))
    assert symbolic.shape == (None, *eager.shape[1:])
    assert tuple(instance.compute_output_shape((2, *shape))) == eager.shape
    model = keras.Model(x := keras.Input(shape), instance(x))
    for batch in (1, 2):
        graph = model.predict(inputs(shape, 2)[:batch], verbose=0)
        np.testing.assert_allclose(graph, eager[:batch], rtol=1e-4, atol=2e-5)


def check_mixed_precision(cls, arguments, shape):
    """Under mixed_bfloat16 variables stay float32, and results stay near those of float32."""
    instance = made(cls, arguments, shape)
    half = made(cls, arguments, shape, dtype="mixed_bfloat16")
    assert {keras.backend.standardize_dtype(v.dtype) for v in half.trainable_variables} <= {"float32"}
    assert half.dtype_policy.name == "mixed_bfloat16"
    if not isinstance(half, keras.Model):
        assert keras.backend.standardize_dtype(half(inputs(shape)).dtype) == "bfloat16"
    full, low = (keras.ops.convert_to_numpy(keras.ops.cast(m(inputs(shape)), "float32")) for m in (instance, half))
    np.testing.assert_allclose(low, full, atol=0.05 * max(1.0, np.abs(full).max()))


def check_fit(cls, arguments, shape):
    """One step of fit changes every trainable variable that the loss depends on, and leaves them finite."""
    model = as_model(made(cls, arguments, shape), shape)
    before = [keras.ops.convert_to_numpy(v) for v in model.trainable_variables]
    model.compile(keras.optimizers.SGD(0.1), "mse")
    target = np.random.default_rng(2).normal(size=(4, *model.output_shape[1:]))
    model.fit(inputs(shape, 4), target, batch_size=4, epochs=1, verbose=0)
    after = [keras.ops.convert_to_numpy(v) for v in model.trainable_variables]
    assert all(np.isfinite(a).all() for a in after)
    changed = sum(not np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    # A key's bias shifts all scores of a query alike, which the softmax cancels.
    constant = sum(v.path.endswith("key/bias") for v in model.trainable_variables)
    assert changed >= len(before) - constant


def save_case(cls, arguments, shape, folder, name):
    """Writes the model of a case, and inputs for it; returns the outputs to expect."""
    model = as_model(made(cls, arguments, shape), shape)
    model.save(folder / f"{name}.keras")
    np.save(folder / f"{name}.in.npy", inputs(shape))
    return keras.ops.convert_to_numpy(model(inputs(shape), training=False))


def load_cases(folder):
    """Loads every saved case in a new process, with safe_mode and no custom_objects."""
    done = subprocess.run([sys.executable, "-c", LOADER, str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
