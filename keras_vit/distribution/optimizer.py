"""One update from the global gradient, for any number of replicas and accumulated batches."""

import contextlib
import numbers
import re

import keras
from keras import ops

from keras_vit.distribution.replicas import JAX, TENSORFLOW, all_reduce, several_workers

if TENSORFLOW:
    import tensorflow as tf


def unwrap(optimizer):
    """The optimizer itself, without the LossScaleOptimizer that mixed_float16 puts around it."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def run_if(condition, assign, variables):
    """Calls `assign` if `condition`, a scalar tensor, is true; `assign` changes only `variables`."""
    if TENSORFLOW:
        tf.cond(condition, assign, lambda: None)
    elif JAX:  # where a branch of the graph cannot assign: both results are computed, and one is selected
        before = [variable.value for variable in variables]
        assign()
        for variable, value in zip(variables, before, strict=True):
            variable.assign(ops.where(condition, variable.value, value))
    elif condition:  # on torch, without a graph, it is a number
        assign()


class GlobalUpdate:
    """Mixin before a Keras optimizer: one update from the global gradient, the same on every replica.

    The gradients are first summed over the replicas. Then each replica accumulates, clips, decays, applies and averages
    on its own copy of the variables, so that no communication is under a condition.

    Args:
        rate_multipliers, momentum_dtype: see `keras_vit.training.optimizers`.

    Attributes:
        unfinished: while True, the end of a `fit` does not put the averaged weights into the model.
    """

    unfinished = False

    def __init__(self, learning_rate, *, rate_multipliers=None, momentum_dtype=None, **options):
        if isinstance(learning_rate, numbers.Real):  # Keras refuses numpy's
            learning_rate = float(learning_rate)
        super().__init__(learning_rate, **options)
        self.rate_multipliers = dict(rate_multipliers or {})
        self.momentum_dtype = momentum_dtype

    def get_config(self):
        own = {"rate_multipliers": self.rate_multipliers, "momentum_dtype": self.momentum_dtype}
        return {**super().get_config(), **own}

    def multiplier(self, variable):
        """The factor of the learning rate of the variable."""
        factors = (factor for pattern, factor in self.rate_multipliers.items() if re.search(pattern, variable.path))
        return next(factors, 1.0)

    def build_without_slots(self, variables):
        """Makes what every optimizer of Keras has; before the first update, averages are the weights."""
        keras.optimizers.Optimizer.build(self, variables)
        for variable, average in self.averages() if self.use_ema else ():
            average.assign(ops.copy(variable.value))

    def add_slots(self, variables, name, dtype=None):
        """A new zero variable for each of `variables`, on the same devices; by default in float32 at least."""
        strategy = getattr(self, "_distribution_strategy", None)  # other backends have none
        if several_workers(strategy):
            # TensorFlow's collectives, which make a variable equal on all workers, do not support bfloat16.
            dtype = None
        slots = []
        for variable in variables:
            with strategy.extended.colocate_vars_with(variable.value) if strategy else contextlib.nullcontext():
                path = f"{variable.path.replace('/', '_')}_{name}"
                layout = getattr(variable, "_layout", None)  # on JAX: how the variable is split over devices
                own = dtype or keras.backend.result_type(variable.dtype, "float32")
                slots.append(self.add_variable(variable.shape, dtype=own, layout=layout, name=path))
        return slots

    def store_moment(self, slot, moment):
        """Stores a first moment, rounded to `momentum_dtype`."""
        # Rounded even if the slot has another dtype, so that several workers train like one.
        slot.assign(ops.cast(ops.cast(moment, self.momentum_dtype or slot.dtype), slot.dtype))

    def index(self, variable):
        """The index of `variable` among those that the optimizer was built for."""
        return self._get_variable_index(variable)

    def averages(self):
        """(weight, its moving average) for every trainable weight; use_ema must be on."""
        return list(zip(self._trainable_variables, self._model_variables_moving_average, strict=True))

    def finalize_variable_values(self, var_list):
        if self.unfinished:
            return
        super().finalize_variable_values(var_list)
        if JAX and self.use_ema:
            for variable, _ in self.averages():
                variable.assign(ops.copy(variable.value))  # the next step donates both arrays, so they must be two

    def _backend_apply_gradients(self, grads, trainable_variables):
        """Replaces Keras' method: it clips before summing over replicas, and calls merge_call under a condition."""
        grads = all_reduce(grads)
        steps = self.gradient_accumulation_steps
        if not steps:
            return self.update(grads, trainable_variables)
        sums = [self._accumulated_gradients[self.index(v)] for v in trainable_variables]
        for total, grad in zip(sums, grads, strict=True):
            total.assign_add(ops.cast(grad, total.dtype))

        def update_and_reset():
            self.update([total / steps for total in sums], trainable_variables)
            for total in sums:
                total.assign(ops.zeros(total.shape, total.dtype))

        assigned = [*trainable_variables, *(v for v in self.variables if v is not self._iterations)]
        run_if((self._iterations + 1) % steps == 0, update_and_reset, assigned)

    def _get_current_learning_rate(self):
        """The learning rate; a schedule counts updates, not accumulated batches."""
        if isinstance(self._learning_rate, keras.optimizers.schedules.LearningRateSchedule):
            return self._learning_rate(self.iterations)
        return super()._get_current_learning_rate()

    def update(self, grads, variables):
        """Clips, decays and applies `grads`, the global gradient, then averages the weights."""
        grads = [ops.cast(grad, keras.backend.result_type(grad.dtype, "float32")) for grad in grads]
        grads = self._clip_gradients(grads)
        for grad, variable in zip(grads, variables, strict=True):
            rate = ops.cast(self.learning_rate, "float32") * self.multiplier(variable)
            # As in the official code, only kernels decay.
            if self.weight_decay and variable.name.endswith("kernel") and self._use_weight_decay(variable):
                variable.assign_sub(variable * (rate * self.weight_decay))
            self.update_step(grad, variable, rate)
        if self.use_ema:
            self.update_averages()

    def update_averages(self):
        """average = momentum * average + (1 - momentum) * weight; the first update copies the weights."""
        first = ops.equal(self.iterations, 0)
        for variable, average in self.averages():
            share = ops.where(first, 1.0, 1 - self.ema_momentum)  # float32 rounds the difference less
            average.assign_add(ops.cast(share, average.dtype) * (variable - average))
        if self.ema_overwrite_frequency:
            due = (self.iterations + 1) % self.ema_overwrite_frequency == 0
            run_if(due, self.overwrite_by_averages, [variable for variable, _ in self.averages()])

    def overwrite_by_averages(self):
        for variable, average in self.averages():
            variable.assign(average)
