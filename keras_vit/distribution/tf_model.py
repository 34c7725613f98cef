"""`keras.Model` with the same training, evaluation and prediction on one replica and on many.

This one is for TensorFlow. JAX's is in `jax_model`; on other backends `DistributedModel` is `keras.Model`.
"""

import functools
import warnings
from typing import Any

import keras
import tensorflow as tf

from keras_vit.distribution.optimizer import GlobalUpdate, unwrap
from keras_vit.distribution.replicas import (
    all_reduce,
    average_logs,
    build_for,
    nan_unless_all_finite,
    replica_count,
)
from keras_vit.distribution.tf_batches import (
    distribute_batch,
    drop_padding,
    make_several_steps,
    pad_empty_batch,
    sum_gradients,
)
from keras_vit.distribution.weighing import (
    Counts,
    count,
    divides_by_weights,
    multiply_losses,
    output_means,
    part_factors,
)
from keras_vit.errors import ConfigError


def warn_of_local_clipping(optimizer):
    """Warns of an optimizer of Keras' own that would clip each replica's gradient separately."""
    inner = unwrap(optimizer)
    clips = [name for name in ("clipnorm", "global_clipnorm", "clipvalue") if getattr(inner, name, None) is not None]
    if clips and replica_count() > 1 and not isinstance(inner, GlobalUpdate):
        name = type(inner).__name__
        warnings.warn(
            f"keras.optimizers.{name} applies {clips[0]} to each replica's gradient before they are summed, so that "
            "the result depends on the number of replicas. Use SGD, Adam or AdamW of keras_vit.training.",
            stacklevel=3,
        )


def require_in_scope(optimizer, strategy):
    created_in_scope = strategy.extended.variable_created_in_scope
    if not all(created_in_scope(variable.value) for variable in getattr(optimizer, "variables", ())):
        raise ConfigError(
            f"The optimizer was made outside the scope of the model's {type(strategy).__name__}. Make it inside: "
            "with strategy.scope(): model.compile(optimizer=...)."
        )


def require_no_jit(jit_compile):
    if jit_compile is True and replica_count() > 1:
        raise ConfigError(
            f"jit_compile=True cannot train on {replica_count()} replicas: XLA would compile their step as that of one "
            "device. Leave it out (TPUStrategy compiles by itself), or train on one device."
        )


@keras.saving.register_keras_serializable(package="keras_vit")
class DistributedModel(keras.Model):
    """A `keras.Model` that trains alike on one replica and on many: construct it in the strategy's scope.

    The gradient of a step is that of the global batch, however that is distributed. A part is what one replica computes
    at once: its batch, or a microbatch of it. Each output's mean loss of a part is weighed by the part's share of the
    examples (of the sample weights for a loss with the reduction "mean_with_sample_weight"). A loss function must
    return one value per example, as Keras' own do.

    Attributes:
        microbatches: number of microbatches per replica's batch. They are computed one after the other before a single
            update: less memory, same result (the official code's accum_steps). Set it before `fit`.
    """

    microbatches: int = 1

    def __setattr__(self, name, value):
        if name != "trainable":
            super().__setattr__(name, value)
            return
        # On TensorFlow Keras passes over a layer that has the value already, whatever the parts of it have.
        for layer in self._flatten_layers():
            keras.layers.Layer.trainable.fset(layer, value)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """`keras.Model.compile`, in the scope of the model's strategy, wherever it is called.

        Raises:
            ConfigError: for an optimizer that was made outside that scope; for jit_compile=True on several replicas.
        """
        with self.distribute_strategy.scope():
            super().compile(*args, **kwargs)
            require_no_jit(self.jit_compile)
            warn_of_local_clipping(self.optimizer)
        if self._distribute_strategy is not None:
            require_in_scope(self.optimizer, self._distribute_strategy)

    def compile_from_config(self, config):
        """Compiles a loaded model like the saved one. Keras' method does nothing if `compile` is overridden."""
        with self.distribute_strategy.scope():
            self.compile(**keras.saving.deserialize_keras_object(config))
            if self.optimizer is not None:
                self.optimizer.build(self.trainable_variables)

    def train_step(self, data):
        if self.microbatches == 1 and replica_count() == 1:
            return super().train_step(data)
        gradients = self.compute_gradients(data, self.global_counts(data))
        if replica_count() > 1 and isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer):
            gradients = nan_unless_all_finite(gradients)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        return average_logs(self.get_metrics_result())

    def test_step(self, data):
        if replica_count() == 1 and not divides_by_weights(self):
            return super().test_step(data)
        self.part_loss(data, self.global_counts(data), training=False)
        return average_logs(self.get_metrics_result())

    def predict_step(self, data):
        return drop_padding(super().predict_step(pad_empty_batch(data)), data)

    def global_counts(self, data):
        """The counts of the global batch; `data` is this replica's part of it."""
        counts = count(self, data)
        # A static shape is the same on every replica, so nothing need be sent; with run_eagerly each replica knows
        # only its own shape.
        static = not tf.executing_eagerly() and all(
            leaf.shape[0] is not None for leaf in tf.nest.flatten(data) if leaf is not None
        )
        flat = [counts.examples, *counts.weights]
        if static and not divides_by_weights(self):
            totals = [n * replica_count() for n in flat]
        else:
            totals = all_reduce(flat)
        return Counts(totals[0], totals[1:])

    def compute_gradients(self, data, totals):
        """The replica's part of the global gradient, one tensor per trainable weight; None for a weight without one."""
        if self.microbatches == 1:
            return self.part_gradients(data, totals)
        compute = functools.partial(self.part_gradients, totals=totals)
        return sum_gradients(compute, data, self.trainable_weights, self.microbatches)

    def part_gradients(self, data, totals):
        with tf.GradientTape() as tape:
            loss = self.optimizer.scale_loss(self.part_loss(data, totals, training=True))
        return tape.gradient(loss, self.trainable_weights)

    def part_loss(self, data, totals, training):
        """A part's loss, weighed by its share of the global batch; updates the metrics."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(pad_empty_batch(data))
        y_pred = self(x, training=training)
        self.require_loss_per_example(y, y_pred)
        before = [[tf.convert_to_tensor(v) for v in metric.variables] for metric in output_means(self)]
        counts = count(self, data)
        share, factors = part_factors(self, counts, totals)
        with multiply_losses(self, factors):
            loss = self.compute_loss(x, y, y_pred, sample_weight, training=training)
        loss = loss * tf.cast(share * replica_count(), loss.dtype)  # Keras has divided means by the number of replicas
        self.weigh_output_losses(before, factors, share)
        # In training, Keras' mean counts all examples alike; in evaluation, padding has weight 0 and must not count.
        n, total = (counts.examples, totals.examples) if training else (counts.weight(), totals.weight())
        # The parts' losses add up to the step's, so a part's own mean loss is loss * total / n.
        mean = tf.math.divide_no_nan(tf.cast(loss, "float32") * total, n)
        self._loss_tracker.update_state(mean, sample_weight=n)
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        self.compute_metrics(x, y, drop_padding(y_pred, data), sample_weight=sample_weight)
        return loss

    def require_loss_per_example(self, y, y_pred):
        if callable(self.loss) and not isinstance(self.loss, keras.losses.Loss) and not self.loss(y, y_pred).shape.rank:
            raise ConfigError(
                "On several replicas or in microbatches a loss function must return one value per example, shape (n,), "
                f"so that the global mean can be taken. {getattr(self.loss, '__name__', self.loss)!r} returns a scalar."
            )

    def weigh_output_losses(self, before, factors, share):
        """Weighs the last update of each output's mean by `share` of a batch; Keras gives every part the weight 1.

        `compute_loss` returns the sum of the outputs' losses, and leaves each loss only in its running mean. The change
        of the mean's (total, count) is that loss: it is subtracted, and added again with its weight.

        Args:
            before: (total, count) of each mean before the part.
            factors: the factor of each output's loss, besides the share.
        """
        for metric, (total, n), factor in zip(output_means(self), before, factors if before else (), strict=True):
            loss = (metric.total - total) / (metric.count - n)
            metric.total.assign(total + loss * share * factor)
            metric.count.assign(n + share)

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        """Builds from the dataset's element_spec, instead of reading a batch and averaging it over the replicas.

        Without a strategy Keras builds while tracing the first step, but `weigh_output_losses` needs the means earlier.
        """
        in_parts = self.microbatches > 1 or divides_by_weights(self)
        if iterator is not None and (in_parts or self._distribute_strategy is not None):
            build_for(self, iterator._distributed_dataset.element_spec)
        elif data_batch is not None and in_parts and self._distribute_strategy is None:
            self._symbolic_build(data_batch=data_batch)
        else:
            super()._maybe_symbolic_build(iterator=iterator, data_batch=data_batch)

    def make_train_function(self, force=False):
        """Keras' function, after the optimizer's variables: made while it is traced, 150 of them take 80 MB more."""
        if not self.optimizer.built:
            with self.distribute_strategy.scope():
                self.optimizer.build(self.trainable_variables)
        return super().make_train_function(force)

    def _make_function(self, step_function):
        """Keras' function; on several replicas it also runs several steps and distributes a host's batch."""
        strategy = self.distribute_strategy
        if strategy.num_replicas_in_sync == 1:
            return super()._make_function(step_function)
        single = self.steps_per_execution == 1 or self.run_eagerly
        run = super()._make_function(step_function) if single else make_several_steps(self, step_function)

        def function(batches):
            if isinstance(batches, tf.distribute.DistributedIterator):
                return run(batches)
            return self._get_metrics_result_or_logs(run(distribute_batch(strategy, next(batches))))

        return function

    def predict_on_batch(self, x):
        if self.distribute_strategy.num_replicas_in_sync == 1:
            return super().predict_on_batch(x)
        return self.predict(x, batch_size=len(tf.nest.flatten(x)[0]), verbose=0)
