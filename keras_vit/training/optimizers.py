"""SGD, Adam and AdamW as the paper's experiments used them, equal on any number of replicas.

Beyond Keras' own arguments, each takes

    absolute_weight_decay: decay per step at the schedule's peak, as the official configurations write it
        (w -= schedule / peak * decay * w); Keras' and PyTorch's `weight_decay` is this divided by the peak rate.
    decay_pattern: regular expression; only variables whose name matches decay. "kernel$" as in the official code.
    rate_multipliers: {regular expression: factor} of the learning rate of variables whose path matches, the first
        match counting; see `layer_decay`.
    momentum_dtype: "bfloat16" stores the first moment in half the memory (on several workers it only rounds it); the
        step itself is computed in float32.

`global_clipnorm` (and clipnorm, clipvalue) clip the gradient of the global batch. `gradient_accumulation_steps`
averages the gradients of that many batches before one update; schedules and averages count updates.

All of it works on the TensorFlow backend; on JAX and torch, `gradient_accumulation_steps` and
`ema_overwrite_frequency` are refused.
"""

import re

import keras
from keras import ops

from keras_vit.distribution import GlobalUpdate
from keras_vit.errors import ConfigError


class Extras(GlobalUpdate):
    """What our three optimizers share: decay of kernels, learning-rate factors, slots of another dtype."""

    def __init__(
        self,
        *args,
        absolute_weight_decay=None,
        decay_pattern="kernel$",
        rate_multipliers=None,
        momentum_dtype=None,
        **kwargs,
    ):
        if absolute_weight_decay is not None:
            rate = args[0] if args else kwargs.get("learning_rate", 0.001)
            kwargs["weight_decay"] = absolute_weight_decay / peak_rate(rate)
        super().__init__(*args, **kwargs)
        self.decay_pattern = decay_pattern
        self.rate_multipliers = dict(rate_multipliers or {})
        self.momentum_dtype = momentum_dtype

    def decays(self, variable):
        return re.search(self.decay_pattern, variable.name) is not None

    def multiplier(self, variable):
        factors = (factor for pattern, factor in self.rate_multipliers.items() if re.search(pattern, variable.path))
        return next(factors, 1.0)

    def slots(self, variables, name, dtype=None):
        """A zero variable for each of `variables`, next to it."""
        return [self.add_slot(variable, name, dtype) for variable in variables]

    def store(self, slot, moment):
        """Keeps a first moment, rounded to `momentum_dtype`."""
        slot.assign(ops.cast(ops.cast(moment, self.momentum_dtype or slot.dtype), slot.dtype))

    def get_config(self):
        return {
            **super().get_config(),
            "decay_pattern": self.decay_pattern,
            "rate_multipliers": self.rate_multipliers,
            "momentum_dtype": self.momentum_dtype,
        }


def peak_rate(learning_rate):
    peak = getattr(learning_rate, "peak", learning_rate)
    if not isinstance(peak, (int, float)) or peak <= 0:
        raise ConfigError(
            "absolute_weight_decay needs a positive learning rate, or a schedule of this package, whose peak is known. "
            f"Received: learning_rate={learning_rate}. Give weight_decay, that decay divided by the peak, instead."
        )
    return peak


@keras.saving.register_keras_serializable(package="keras_vit")
class SGD(Extras, keras.optimizers.SGD):
    """Momentum as in the official code: v = momentum * v + g, then w -= rate * v (Keras folds the rate into v).

    The two are the same at a constant learning rate. See the module for the arguments beyond `keras.optimizers.SGD`.

    >>> SGD(0.03, momentum=0.9, global_clipnorm=1.0, momentum_dtype="bfloat16")
    """

    def build(self, variables):
        if self.built:
            return
        keras.optimizers.Optimizer.build(self, variables)
        self.momentums = self.slots(variables, "momentum", self.momentum_dtype) if self.momentum else []

    def update_step(self, gradient, variable, learning_rate):
        g, rate = ops.cast(gradient, variable.dtype), ops.cast(learning_rate, variable.dtype)
        step = g
        if self.momentum:
            slot = self.momentums[self.index(variable)]
            velocity = self.momentum * ops.cast(slot, variable.dtype) + g
            self.store(slot, velocity)
            step = g + self.momentum * velocity if self.nesterov else velocity
        variable.assign_sub(rate * step)


class AdamStep:
    """Adam's update (arXiv 1412.6980, as its section 2 ends, with epsilon hat), shared by Adam and AdamW."""

    def build(self, variables):
        if self.built:
            return
        keras.optimizers.Optimizer.build(self, variables)
        self.momentums = self.slots(variables, "momentum", self.momentum_dtype)
        self.velocities = self.slots(variables, "velocity")
        if self.amsgrad:
            self.velocity_hats = self.slots(variables, "velocity_hat")

    def update_step(self, gradient, variable, learning_rate):
        dtype, i = variable.dtype, self.index(variable)
        g, rate = ops.cast(gradient, dtype), ops.cast(learning_rate, dtype)
        t = ops.cast(self.iterations + 1, dtype)
        slot, v = self.momentums[i], self.velocities[i]
        m = ops.cast(slot, dtype)
        m = m + (g - m) * (1 - self.beta_1)
        self.store(slot, m)
        v.assign_add((ops.square(g) - v) * (1 - self.beta_2))
        if self.amsgrad:
            self.velocity_hats[i].assign(ops.maximum(self.velocity_hats[i], v))
            v = self.velocity_hats[i]
        rate = rate * ops.sqrt(1 - ops.power(ops.cast(self.beta_2, dtype), t))
        rate = rate / (1 - ops.power(ops.cast(self.beta_1, dtype), t))
        variable.assign_sub(rate * m / (ops.sqrt(v) + self.epsilon))


@keras.saving.register_keras_serializable(package="keras_vit")
class Adam(AdamStep, Extras, keras.optimizers.Adam):
    """Adam, with decoupled decay of kernels if `weight_decay` is given; see the module for the arguments of ours.

    >>> Adam(1e-3, absolute_weight_decay=1e-4, global_clipnorm=1.0)
    """


@keras.saving.register_keras_serializable(package="keras_vit")
class AdamW(AdamStep, Extras, keras.optimizers.AdamW):
    """Adam with decoupled weight decay (arXiv 1711.05101) of kernels: w -= rate * weight_decay * w.

    See the module for the arguments beyond `keras.optimizers.AdamW`.

    >>> AdamW(3e-3, weight_decay=0.3, global_clipnorm=1.0)
    """
