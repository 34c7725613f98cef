"""Where private hooks of Keras are overridden, so that `model.fit` means the same on one device and on many.

Keras 3.15 (1) reads a real batch and averages it over the replicas to build a model's metrics, which fails for
integer leaves on a TPU and for any leaf on several workers; (2) weighs the replicas' mean losses alike, though the last
batch need not divide evenly; (3) averages the step's logs in a way that fails on several workers, and on a TPU shows
replica 0 alone; (4) clips each replica's gradient before they are summed; (5) calls tf.distribute's merge_call under a
condition to accumulate gradients and to overwrite weights by their average, which no graph allows; (6) puts the
replicas' steps under a condition in a loop for steps_per_execution, which fails on MirroredStrategy; (7) scales the
loss of float16 by whether replica 0's gradient is finite; (8) gives the batch of `train_on_batch` and its like whole
to every replica.
tests/distribution/test_hooks.py fails when a hook is gone.
"""

import contextlib
import warnings

import keras
from keras import ops

from keras_vit import _registration
from keras_vit.errors import ConfigError, require_tensorflow

TENSORFLOW = keras.backend.backend() == "tensorflow"
if TENSORFLOW:
    import tensorflow as tf


def replicas():
    """How many replicas train in step, of the strategy in scope; Keras' other backends have one."""
    if not TENSORFLOW:
        return 1
    return tf.distribute.get_strategy().num_replicas_in_sync


def all_reduce(values, op="SUM"):
    """Each of a list of tensors summed ("SUM") or averaged ("MEAN") over the replicas; unchanged with one replica."""
    if replicas() == 1 or not values or tf.distribute.get_replica_context() is None:
        return list(values)
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp[op], [tf.convert_to_tensor(value) for value in values])


def several_workers(strategy):
    """Whether `strategy` trains on several machines; None, as on other backends, does not."""
    if strategy is None:
        return False
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) and strategy.extended._in_multi_worker_mode()


def beside(variable, strategy):
    """A context in which new variables lie on the devices of `variable`; strategy: None on other backends."""
    if strategy is None:
        return contextlib.nullcontext()
    return strategy.extended.colocate_vars_with(variable.value)


def shared_logs(logs):
    """The step's logs (scalars) averaged over the replicas, in the shape that Keras can reduce once more."""
    if replicas() == 1:
        return logs
    flat = all_reduce([tf.cast(value, "float32") for value in tf.nest.flatten(logs)], "MEAN")
    if several_workers(tf.distribute.get_strategy()):
        # Keras calls strategy.reduce("MEAN", value, axis=0), which needs that axis.
        flat = [tf.reshape(value, (1,)) for value in flat]
    return tf.nest.pack_sequence_as(logs, flat)


def symbolic(spec):
    """A KerasTensor in place of one leaf of a dataset's element_spec, for one replica."""
    spec = getattr(spec, "_value_specs", (spec,))[0]  # PerReplicaSpec holds a spec for each local replica
    return keras.KerasTensor(tuple(spec.shape), dtype=keras.backend.standardize_dtype(spec.dtype))


def build_for(model, spec):
    """Creates what `fit` on data of that element_spec would: optimizer slots, metrics, loss."""
    with model.distribute_strategy.scope():
        model._symbolic_build(data_batch=tf.nest.map_structure(symbolic, spec))


def piece(tensor, i, count):
    """The i-th of `count` consecutive pieces of a batch, as equal as can be; i may be a tensor."""
    if tensor is None:
        return None
    tensor = tf.convert_to_tensor(tensor)
    n = tensor.shape[0]
    if n is None:
        n = tf.shape(tensor)[0]
        return tensor[i * n // count : (i + 1) * n // count]
    if n % count:
        raise ConfigError(f"microbatches must divide the batch of each replica. Received: {count} and {n}.")
    return tf.gather(tf.reshape(tensor, (count, n // count, *tensor.shape[1:])), i)


def examples(x):
    """How many examples a batch holds, as a float32 scalar."""
    return tf.cast(tf.shape(tf.nest.flatten(x)[0])[0], "float32")


def never_empty(data):
    """The batch, or where it is empty (a replica's part of a last batch) one example of zeros.

    TensorFlow's convolutions give empty batches a wrong shape.
    """

    def fill(leaf):
        if leaf is None or leaf.shape[0]:
            return leaf
        missing = tf.cast(tf.equal(tf.shape(leaf)[0], 0), "int32")
        filled = tf.concat([leaf, tf.zeros((missing, *leaf.shape[1:]), leaf.dtype)], axis=0)
        return tf.ensure_shape(filled, (None, *leaf.shape[1:]))

    return tf.nest.map_structure(fill, data)


def first(outputs, data):
    """As many of the outputs for `never_empty(data)` as data has examples."""
    x = tf.nest.flatten(keras.utils.unpack_x_y_sample_weight(data)[0])[0]
    if x.shape[0]:
        return outputs
    return tf.nest.map_structure(lambda output: output[: tf.shape(x)[0]], outputs)


def unwrapped(optimizer):
    """The optimizer itself, where mixed_float16 has wrapped it in a LossScaleOptimizer."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def require_global_clipping(optimizer):
    """Warns of an optimizer of Keras' own that would clip each replica's gradient for itself."""
    inner = unwrapped(optimizer)
    clips = [name for name in ("clipnorm", "global_clipnorm", "clipvalue") if getattr(inner, name, None) is not None]
    if clips and replicas() > 1 and not isinstance(inner, GlobalUpdate):
        name = type(inner).__name__
        warnings.warn(
            f"keras.optimizers.{name} applies {clips[0]} to each replica's gradient before they are summed, so that "
            f"the result depends on the number of replicas. Use keras_vit.training.{name}.",
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
    if jit_compile is True and replicas() > 1:
        raise ConfigError(
            f"jit_compile=True cannot train on {replicas()} replicas: XLA would take the step of all for one device's. "
            "Leave it out (TPUStrategy compiles by itself), or train on one device."
        )


def finite_together(gradients):
    """The replicas' gradients; all NaN where any of them is not finite, so that LossScaleOptimizer skips the step."""
    found = [tf.convert_to_tensor(gradient) for gradient in gradients if gradient is not None]
    finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in found])
    others = all_reduce([tf.where(finite, 0.0, 1.0)])[0]
    factor = tf.where(others > 0, float("nan"), 1.0)
    return [None if gradient is None else gradient * tf.cast(factor, gradient.dtype) for gradient in gradients]


def one_batch(strategy, batch):
    """An iterator of the replicas' parts of one batch that the host holds."""
    dataset = tf.data.Dataset.from_tensor_slices(keras.utils.pack_x_y_sample_weight(*batch))
    dataset = dataset.batch(len(tf.nest.flatten(batch[0])[0]))
    return iter(strategy.experimental_distribute_dataset(dataset))


class TensorFlowModel(keras.Model):
    """A `keras.Model` that trains alike on one replica and on many: construct it in the strategy's scope.

    The gradient of a step is that of the global batch, however it is spread over replicas and microbatches: each
    part's mean loss counts by its share of the examples (of the sample weights for losses with the reduction
    "mean_with_sample_weight"). Losses must give one value per example, as Keras' own do.

    Attributes:
        microbatches: parts into which each replica's batch is cut, one after the other, before the one update: less
            memory, same result (the official code's accum_steps). Set it before `fit`.

    uint8 images are normalized on the device by `model.preprocessing` where the model has one.
    """

    microbatches = 1
    preprocessing = None

    def compile(self, *args, **kwargs):
        """`keras.Model.compile`, in the scope of the strategy that the model was made in, wherever it is called.

        Raises:
            ConfigError: for an optimizer that was made outside that scope; for jit_compile=True on several replicas.
        """
        with self.distribute_strategy.scope():
            super().compile(*args, **kwargs)
            require_no_jit(self.jit_compile)
            require_global_clipping(self.optimizer)
        if self._distribute_strategy is not None:
            require_in_scope(self.optimizer, self._distribute_strategy)

    def compile_from_config(self, config):
        """Compiles a loaded model as the saved one was. Keras' own does nothing where `compile` is overridden."""
        with self.distribute_strategy.scope():
            self.compile(**keras.saving.deserialize_keras_object(config))
            if self.optimizer is not None:
                self.optimizer.build(self.trainable_variables)

    def train_step(self, data):
        data = self.normalized(data)
        if self.microbatches == 1 and replicas() == 1:
            return super().train_step(data)
        gradients = self.gradients(data, self.global_counts(data))
        if replicas() > 1 and isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer):
            gradients = finite_together(gradients)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
        return shared_logs(self.get_metrics_result())

    def test_step(self, data):
        data = self.normalized(data)
        if replicas() == 1 and self.loss_reduction() != "mean_with_sample_weight":
            return super().test_step(data)
        self.part_loss(data, self.global_counts(data), training=False)
        return shared_logs(self.get_metrics_result())

    def predict_step(self, data):
        data = self.normalized(data)
        return first(super().predict_step(never_empty(data)), data)

    def normalized(self, data):
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        if getattr(x, "dtype", None) != tf.uint8 or self.preprocessing is None:
            return data
        x = self.preprocessing.normalize(x)
        return keras.utils.pack_x_y_sample_weight(x, y, sample_weight)

    def counts(self, data):
        """[examples, what the loss divides by] of a batch, float32."""
        x, _, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        n = examples(x)
        if sample_weight is None or self.loss_reduction() != "mean_with_sample_weight":
            return [n, n]
        return [n, tf.reduce_sum(tf.cast(sample_weight, "float32"))]

    def global_counts(self, data):
        counts = self.counts(data)
        # With run_eagerly every shape is known, to its own replica.
        static = not tf.executing_eagerly() and all(
            leaf.shape[0] is not None for leaf in tf.nest.flatten(data) if leaf is not None
        )
        if static and self.loss_reduction() != "mean_with_sample_weight":
            return [count * replicas() for count in counts]
        return all_reduce(counts)

    def loss_reduction(self):
        """The reduction that all losses of `compile` share."""
        losses = [loss for loss in tf.nest.flatten(self.loss) if isinstance(loss, keras.losses.Loss)]
        kinds = {"sum_over_batch_size" if loss.reduction == "mean" else loss.reduction for loss in losses}
        if len(kinds) > 1:
            raise ConfigError(f"On several replicas all losses must share one reduction. Received: {sorted(kinds)}.")
        return kinds.pop() if kinds else "sum_over_batch_size"

    def gradients(self, data, totals):
        """The replica's part of the global gradient, one tensor per trainable weight (None where there is none)."""
        if self.microbatches == 1:
            return self.part_gradients(data, totals)
        found = []

        def add(i, sums):
            part = tf.nest.map_structure(lambda leaf: piece(leaf, i, self.microbatches), data)
            gradients = self.part_gradients(part, totals)
            found[:] = [gradient is not None for gradient in gradients]
            gradients = [0.0 if g is None else tf.convert_to_tensor(g) for g in gradients]
            return i + 1, [s + tf.cast(g, s.dtype) for s, g in zip(sums, gradients, strict=True)]

        zeros = [tf.zeros(weight.shape, weight.dtype) for weight in self.trainable_weights]
        sums = tf.while_loop(lambda i, _: i < self.microbatches, add, (0, zeros), parallel_iterations=1)[1]
        return [s if has else None for s, has in zip(sums, found, strict=True)]

    def part_gradients(self, data, totals):
        with tf.GradientTape() as tape:
            loss = self.optimizer.scale_loss(self.part_loss(data, totals, training=True))
        return tape.gradient(loss, self.trainable_weights)

    def part_loss(self, data, totals, training):
        """One part's loss, weighed by its share; updates the metrics."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(never_empty(data))
        y_pred = self(x, training=training)
        self.require_loss_per_example(y, y_pred)
        before = [[tf.convert_to_tensor(v) for v in metric.variables] for metric in self.output_losses()]
        loss = self.compute_loss(x, y, y_pred, sample_weight, training=training)
        share = self.share(data, totals)
        loss = loss * tf.cast(share, loss.dtype)
        self.weigh_output_losses(before, share / replicas(), tf.math.divide_no_nan(self.counts(data)[0], totals[0]))
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        # Evaluation means over the examples' weights, so that padding does not count; training as Keras does.
        weight = 0 if training else 1
        self.track_loss(loss, self.counts(data)[weight], totals[weight])
        self.compute_metrics(x, y, first(y_pred, data), sample_weight=sample_weight)
        return loss

    def require_loss_per_example(self, y, y_pred):
        if callable(self.loss) and not isinstance(self.loss, keras.losses.Loss) and not self.loss(y, y_pred).shape.rank:
            raise ConfigError(
                "On several replicas or in microbatches a loss function must give one value per example, shape (n,), "
                f"so that the global mean can be taken. {getattr(self.loss, '__name__', self.loss)!r} gives a scalar."
            )

    def share(self, data, totals):
        """Factor of a part's loss, which Keras has divided by the number of replicas unless it is a sum."""
        if self.loss_reduction() == "sum":
            return tf.sign(self.counts(data)[0])  # nothing of the example that stands in for an empty part
        return tf.math.divide_no_nan(self.counts(data)[1], totals[1]) * replicas()

    def output_losses(self):
        """The means in which Keras keeps the loss of each of several outputs; every batch counts 1 in them."""
        return self._compile_loss.metrics if self._compile_loss else []

    def weigh_output_losses(self, before, share, part):
        """Makes a part's losses count by its share of the batch; `before`: the means' variables without the part."""
        for metric, (total, count) in zip(self.output_losses(), before, strict=True):
            value = (metric.total - total) / (metric.count - count)
            metric.total.assign(total + value * share)
            metric.count.assign(count + part)

    def track_loss(self, loss, n, total):
        """Adds a part's loss to the mean, with its weight n of the step's; the parts' losses add up to the step's."""
        value = tf.math.divide_no_nan(tf.cast(loss, "float32") * total, n)
        self._loss_tracker.update_state(value, sample_weight=n)

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        if iterator is None or self._distribute_strategy is None:
            return super()._maybe_symbolic_build(iterator=iterator, data_batch=data_batch)
        build_for(self, iterator._distributed_dataset.element_spec)

    def _make_function(self, step_function):
        strategy = self.distribute_strategy
        if strategy.num_replicas_in_sync == 1:
            return super()._make_function(step_function)
        single = self.steps_per_execution == 1 or self.run_eagerly
        run = super()._make_function(step_function) if single else several_steps(self, step_function)

        def function(batches):
            if isinstance(batches, tf.distribute.DistributedIterator):
                return run(batches)
            return self._get_metrics_result_or_logs(run(one_batch(strategy, next(batches))))

        return function

    def predict_on_batch(self, x):
        if self.distribute_strategy.num_replicas_in_sync == 1:
            return super().predict_on_batch(x)
        return self.predict(x, batch_size=len(tf.nest.flatten(x)[0]), verbose=0)


def several_steps(model, step_function):
    """A function of an iterator that runs up to `steps_per_execution` steps in one call and gives the metrics."""
    strategy, count = model.distribute_strategy, model.steps_per_execution

    @tf.function(reduce_retracing=True)
    @tf.autograph.experimental.do_not_convert
    def one_step(data):
        strategy.run(step_function, args=(data,))

    @tf.function(reduce_retracing=True)
    @tf.autograph.experimental.do_not_convert
    def steps(iterator):
        def body(i, batch):
            one_step(batch.get_value())
            return i + 1, tf.cond(i + 1 < count, iterator.get_next_as_optional, lambda: batch)

        def more(i, batch):
            return (i < count) & batch.has_value()

        return tf.while_loop(more, body, (0, iterator.get_next_as_optional()), parallel_iterations=1)[0]

    def function(iterator):
        if steps(iterator) == 0:
            raise StopIteration
        return model.get_metrics_result()

    return function


DistributedModel = TensorFlowModel if TENSORFLOW else keras.Model
if TENSORFLOW:
    keras.saving.register_keras_serializable("keras_vit", "DistributedModel")(TensorFlowModel)


class GlobalUpdate:
    """Mixin before a Keras optimizer: one update from the global gradient, made alike by every replica.

    The gradients are summed over the replicas first; then accumulated, clipped, decayed, applied and averaged by each
    replica on its own copy of the variables, so that nothing under a condition talks to other replicas.

    Attributes:
        unfinished: while True, the end of a `fit` does not put the averaged weights into the model.
    """

    unfinished = False

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        for name in ("gradient_accumulation_steps", "ema_overwrite_frequency"):
            if getattr(self, name):
                require_tensorflow(f"{name}={getattr(self, name)} of an optimizer")

    def finalize_variable_values(self, var_list):
        if not self.unfinished:
            super().finalize_variable_values(var_list)

    def _backend_apply_gradients(self, grads, trainable_variables):
        grads = all_reduce(grads)
        steps = self.gradient_accumulation_steps
        if not steps:
            return self.update(grads, trainable_variables)
        sums = [self._accumulated_gradients[self._get_variable_index(v)] for v in trainable_variables]
        for total, grad in zip(sums, grads, strict=True):
            total.assign_add(tf.cast(grad, total.dtype))

        def update_and_reset():
            self.update([total / steps for total in sums], trainable_variables)
            for total in sums:
                total.assign(tf.zeros(total.shape, total.dtype))

        tf.cond((self._iterations + 1) % steps == 0, update_and_reset, lambda: None)

    def _get_current_learning_rate(self):
        """A schedule counts updates, not the batches accumulated for one."""
        if isinstance(self._learning_rate, keras.optimizers.schedules.LearningRateSchedule):
            return self._learning_rate(self.iterations)
        return super()._get_current_learning_rate()

    def update(self, grads, variables):
        """Clips, decays and applies `grads`, the global gradient, then averages the weights."""
        grads = self._clip_gradients(grads)
        for grad, variable in zip(grads, variables, strict=True):
            rate = ops.cast(self.learning_rate, "float32") * self.multiplier(variable)
            if self.weight_decay and self.decays(variable) and self._use_weight_decay(variable):
                variable.assign_sub(variable * ops.cast(rate * self.weight_decay, variable.dtype))
            self.update_step(grad, variable, rate)
        if self.use_ema:
            self.average_weights()

    def average_weights(self):
        """average = momentum * average + (1 - momentum) * weight; the first update copies the weights."""
        first = ops.equal(self.iterations, 0)
        pairs = list(zip(self._trainable_variables, self._model_variables_moving_average, strict=True))
        for variable, average in pairs:
            momentum = ops.where(first, 0.0, self.ema_momentum)
            step = (1 - ops.cast(momentum, average.dtype)) * (variable - average)
            average.assign_add(step)
        if self.ema_overwrite_frequency:
            due = (self.iterations + 1) % self.ema_overwrite_frequency == 0

            def overwrite():
                for variable, average in pairs:
                    variable.assign(average)

            tf.cond(due, overwrite, lambda: None)


_registration.register()
