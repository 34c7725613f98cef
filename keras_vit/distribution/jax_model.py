"""`keras.Model` on JAX with the same training, evaluation and prediction on one device and on many."""

import functools
import threading

import jax
import keras
from keras import ops

from keras_vit.distribution.jax_devices import JaxStrategy, WholeBatches
from keras_vit.distribution.weighing import count, divides_by_weights, multiply_losses, output_means, part_factors

# Keras gives a step the memory of the variables: meanwhile another thread would find these deleted.
ASKING = threading.Lock()


def on_its_devices(method):
    """Decorates a model's method to run in the scope of the model's distribution, wherever it is called."""

    @functools.wraps(method)
    def call(self, *args, **kwargs):
        with self.distribute_strategy.scope():
            return method(self, *args, **kwargs)

    return call


def batch_size(data):
    return keras.tree.flatten(data)[0].shape[0]


def cut(leaf, count):
    """Cuts a batch (n, ...) into k microbatches (k, n / k, ...), each of every k-th example, since consecutive ones are
    on one device. k is the least divisor of n that makes them as small as n / count, or single examples. None stays.
    """
    if leaf is None:
        return None
    n = leaf.shape[0]
    k = next(k for k in range(min(count, n), n + 1) if n % k == 0)
    return ops.swapaxes(ops.reshape(leaf, (n // k, k, *leaf.shape[1:])), 0, 1)


@keras.saving.register_keras_serializable(package="keras_vit")
class DistributedModel(keras.Model):
    """The `DistributedModel` of model.py, for JAX; `distribute_strategy` is the `JaxStrategy` of the scope."""

    microbatches: int = 1

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        distribution = keras.distribution.distribution()
        self.distribute_strategy = JaxStrategy(distribution if isinstance(distribution, WholeBatches) else None)

    compile = on_its_devices(keras.Model.compile)
    evaluate = on_its_devices(keras.Model.evaluate)
    predict = on_its_devices(keras.Model.predict)
    train_on_batch = on_its_devices(keras.Model.train_on_batch)
    test_on_batch = on_its_devices(keras.Model.test_on_batch)

    @on_its_devices
    @functools.wraps(keras.Model.predict_on_batch)
    def predict_on_batch(self, x):
        with ASKING:  # of all models: some share variables
            return super().predict_on_batch(x)

    @on_its_devices
    @functools.wraps(keras.Model.fit)  # whose signature others read
    def fit(self, *args, **kwargs):
        if self.distribute_strategy.distribution:
            self.distribute_strategy.distribution.require_used(self)
        return super().fit(*args, **kwargs)

    @on_its_devices
    def compile_from_config(self, config):
        """Compiles a loaded model like the saved one. Keras' method does nothing if `compile` is overridden."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None:
            self.optimizer.build(self.trainable_variables)

    def train_step(self, state, data):
        if self.microbatches == 1:
            return super().train_step(state, data)
        trainable, others, slots, metrics = state
        parts = keras.tree.map_structure(lambda leaf: cut(leaf, self.microbatches), data)
        total = count(self, data)

        def add(carry, part):
            sums, others, metrics = carry
            batch = keras.utils.unpack_x_y_sample_weight(part)
            compute = jax.value_and_grad(self.compute_loss_and_updates, has_aux=True)
            share, factors = part_factors(self, count(self, part), total)
            with multiply_losses(self, factors):
                (_, (loss, y_pred, others, after)), gradients = compute(
                    trainable, others, metrics, *batch, training=True, optimizer_variables=slots
                )
            sums = [s + g * ops.cast(share, g.dtype) for s, g in zip(sums, gradients, strict=True)]
            metrics = self.weigh_output_losses(metrics, after, factors)
            # In the epoch's mean loss all examples count alike, as in Keras.
            metrics = self.update_metrics(metrics, loss, batch_size(part), batch, y_pred)
            return (sums, others, metrics), None

        zeros = [ops.zeros_like(variable) for variable in trainable]
        (gradients, others, metrics), _ = jax.lax.scan(add, (zeros, others, metrics), parts)
        trainable, slots = self.optimizer.stateless_apply(slots, gradients, trainable)
        return self.read_logs(metrics), (trainable, others, slots, metrics)

    def test_step(self, state, data):
        if not divides_by_weights(self):
            return super().test_step(state, data)
        trainable, others, metrics = state
        batch = keras.utils.unpack_x_y_sample_weight(data)
        _, (loss, y_pred, others, metrics) = self.compute_loss_and_updates(
            trainable, others, metrics, *batch, training=False
        )
        # By weights, not by examples as in Keras: padding has weight 0 and must not count.
        metrics = self.update_metrics(metrics, loss, count(self, data).weight(), batch, y_pred)
        return self.read_logs(metrics), (trainable, others, metrics)

    def predict_step(self, state, data):
        outputs, others = super().predict_step(state, data)
        distribution = self.distribute_strategy.distribution
        return distribution.gather(outputs) if distribution else outputs, others

    def weigh_output_losses(self, before, after, factors):
        """The metrics' variables `after` a part, with the part's loss of each output multiplied by its factor."""
        factor = {id(mean.total): factor for mean, factor in zip(output_means(self), factors, strict=False)}
        variables = zip(self.metrics_variables, before, after, strict=True)
        return [old + (new - old) * factor[id(v)] if id(v) in factor else new for v, old, new in variables]

    def update_metrics(self, metrics, loss, weight, batch, y_pred):
        """The metrics' variables after one more part of a batch; its mean loss counts by `weight`."""
        with keras.StatelessScope(state_mapping=list(zip(self.metrics_variables, metrics, strict=True))) as scope:
            self._loss_tracker.update_state(loss, sample_weight=weight)
            x, y, sample_weight = batch
            self.compute_metrics(x, y, y_pred, sample_weight)
            return [scope.get_current_value(variable) for variable in self.metrics_variables]

    def read_logs(self, metrics):
        with keras.StatelessScope(state_mapping=list(zip(self.metrics_variables, metrics, strict=True))):
            return self.get_metrics_result()
