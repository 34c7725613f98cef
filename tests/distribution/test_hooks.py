"""The private hooks of Keras that distribution/ overrides are there, and are still called."""

import inspect
import subprocess
import sys
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from slowness import mark_but
from training_worker import data, small, sparse

from keras_vit import training
from keras_vit.distribution import DistributedModel, GlobalUpdate, weighing
from keras_vit.distribution import tf_model as distributed
from keras_vit.errors import ConfigError
from keras_vit.layers.fast import gradients

SUPPORT = Path(__file__).parent.parent / "support"

MODEL_HOOKS = {
    "_maybe_symbolic_build": ["self", "iterator", "data_batch"],
    "_make_function": ["self", "step_function"],
    "_symbolic_build": ["self", "iterator", "data_batch"],
}
OPTIMIZER_HOOKS = {
    "_backend_apply_gradients": ["self", "grads", "trainable_variables"],
    "_get_current_learning_rate": ["self"],
    "_clip_gradients": ["self", "grads"],
    "_use_weight_decay": ["self", "variable"],
    "_get_variable_index": ["self", "variable"],
}


@pytest.mark.parametrize(
    "owner, hooks", [(keras.Model, MODEL_HOOKS), (keras.optimizers.Optimizer, OPTIMIZER_HOOKS)], ids=["model", "opt"]
)
def test_hooks_exist_with_the_arguments_we_expect(owner, hooks):
    for name, arguments in hooks.items():
        assert list(inspect.signature(getattr(owner, name)).parameters) == arguments, name


def test_fit_calls_the_hooks(monkeypatch):
    called = []
    for owner, name in (
        (DistributedModel, "_maybe_symbolic_build"),
        (DistributedModel, "_make_function"),
        (GlobalUpdate, "_backend_apply_gradients"),
        (GlobalUpdate, "_get_current_learning_rate"),
    ):
        original = getattr(owner, name)

        def spy(self, *args, original=original, name=name, **kwargs):
            called.append(name)
            return original(self, *args, **kwargs)

        monkeypatch.setattr(owner, name, spy)
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        model = small("vit")
        model.compile(training.SGD(0.1, global_clipnorm=1.0), sparse())
    model.fit(data().take(1), verbose=0)
    assert set(called) >= {"_maybe_symbolic_build", "_make_function", "_backend_apply_gradients"}
    assert isinstance(model._loss_tracker, keras.metrics.Mean)
    assert "_get_current_learning_rate" in called


def test_the_optimizers_variables_are_made_before_the_step_is_traced():
    """Keras' own makes them while it traces the step, which takes more memory."""
    model = small("vit")
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), sparse())
    built = []
    model.train_step = lambda data: built.append(model.optimizer.built) or type(model).train_step(model, data)
    model.fit(data().take(1), verbose=0)
    assert built and all(built)


@pytest.mark.slow
def test_fitting_a_dataset_does_not_warn_of_shuffling():
    """As Keras does, of its own default; in a process of its own, since pytest shows every warning."""
    code = (
        "from training_worker import *; m = small('vit'); m.compile('sgd', sparse()); m.fit(data().take(1), verbose=0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=SUPPORT)
    assert done.returncode == 0 and "shuffle" not in done.stderr, done.stderr


def test_the_losses_of_outputs_are_means_where_we_look():
    model = small("two outputs")
    model.compile("sgd", {"a": sparse(), "b": "mse"})
    assert weighing.output_means(model) == []
    model.fit(data(two=True).take(1), verbose=0)
    assert [[v.name for v in metric.variables] for metric in weighing.output_means(model)] == [["total", "count"]] * 2
    assert [(loss.path, loss.loss_weights) for loss in weighing.output_losses(model)] == [
        (("a",), None),
        (("b",), None),
    ]


def test_accumulators_and_averages_are_where_we_look():
    optimizer = training.SGD(0.1, use_ema=True, gradient_accumulation_steps=2)
    optimizer.build([keras.Variable(np.zeros(3), name="kernel")])
    for name in ("_accumulated_gradients", "_model_variables_moving_average", "_trainable_variables"):
        assert len(getattr(optimizer, name)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("family", mark_but(pytest.mark.long, ["vit", "hybrid", "resnet"], "hybrid"))
def test_train_step_compiles_with_xla(family, monkeypatch):
    """What a TPU gets: uint8 images, and group norm in its form for accelerators."""
    monkeypatch.setattr(gradients, "is_compiled", lambda x: False)
    model = small(family, dropout_rate=0.1)
    model.compile(training.AdamW(1e-3, weight_decay=0.1, global_clipnorm=1.0, use_ema=True), sparse())
    model.microbatches = 2
    model.optimizer.build(model.trainable_variables)
    x, y = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), "uint8"), np.arange(4, dtype="int32")
    model._symbolic_build(data_batch=(x, y))
    before = [np.array(v) for v in model.trainable_variables]
    step = tf.function(model.train_step, jit_compile=True)
    traced = step.get_concrete_function((tf.constant(x), tf.constant(y)))
    inner = traced.graph.as_graph_def().library.function
    assert not any(function.attr["_XlaMustCompile"].b for function in inner), "group norm in its form for CPUs"
    logs = step((tf.constant(x), tf.constant(y)))
    assert np.isfinite(logs["loss"])
    after = [np.array(v) for v in model.trainable_variables]
    assert all(np.isfinite(v).all() for v in after)
    assert any((v != w).any() for v, w in zip(before, after, strict=True))


@pytest.mark.slow
def test_compile_knows_the_models_strategy():
    """A model made in a strategy's scope is compiled anywhere; its optimizer's variables must be of that scope."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        model = small("vit")
    model.compile("adam", sparse(), metrics=["accuracy"])
    assert strategy.extended.variable_created_in_scope(model.optimizer.iterations.value)
    assert np.isfinite(model.fit(data().take(1), verbose=0).history["loss"][0])
    with pytest.raises(ConfigError, match=r"outside the scope of the model's MirroredStrategy"):
        model.compile(training.SGD(0.1), sparse())


@pytest.mark.slow
def test_a_saved_model_goes_on_as_it_would_have(tmp_path):
    model, chosen = small("two outputs"), {"a": training.SoftmaxLoss(), "b": "mse"}
    model.compile(training.AdamW(training.WarmupCosine(1e-2, 20, 3), weight_decay=0.1, use_ema=True), chosen)
    model.fit(data(two=True), verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for each in (model, loaded):
        each.fit(data(two=True), verbose=0)
    assert loaded.optimizer.iterations == 12
    for v, w in zip(model.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(v, w)


def test_clipping_each_replica_for_itself_is_warned_of(monkeypatch):
    monkeypatch.setattr(distributed, "replica_count", lambda: 2)
    model = small("vit")
    with pytest.warns(UserWarning, match="Use SGD, Adam or AdamW of keras_vit.training"):
        model.compile(keras.optimizers.AdamW(global_clipnorm=1.0), sparse())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.compile(training.AdamW(1e-3, global_clipnorm=1.0), sparse())
        model.compile(keras.optimizers.AdamW(), sparse())


def test_compiling_the_step_of_several_replicas_as_one_is_refused(monkeypatch):
    model = small("vit")
    model.compile("sgd", sparse(), jit_compile=True)
    monkeypatch.setattr(distributed, "replica_count", lambda: 2)
    with pytest.raises(ConfigError, match="jit_compile=True cannot train on 2 replicas"):
        model.compile("sgd", sparse(), jit_compile=True)
