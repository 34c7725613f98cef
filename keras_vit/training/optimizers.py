"""SGD, Adam and AdamW as the paper's experiments used them, equal on any number of replicas; and their learning rates.

In addition to Keras' arguments, each optimizer takes

    rate_multipliers: {regular expression: factor} for the learning rate of variables whose path matches; the first
        match counts. See `layer_decay`.
    momentum_dtype: "bfloat16" stores the first moment in half the memory (on several workers it only rounds it); the
        step itself is computed in float32.

`weight_decay` concerns kernels alone, as in the official code. It is that of Keras and PyTorch, w -= rate * decay * w;
the official configurations state it times the peak rate. `global_clipnorm` (and clipnorm, clipvalue) clip the gradient
of the global batch. `gradient_accumulation_steps` averages the gradients of that many batches before one update;
schedules and averages count updates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

import keras
from keras import ops

from keras_vit.distribution import GlobalUpdate
from keras_vit.errors import ConfigError

if TYPE_CHECKING:
    from typing import TypeAlias, Unpack

    LearningRate: TypeAlias = float | keras.optimizers.schedules.LearningRateSchedule | Callable[[], float]


class Warmup(keras.optimizers.schedules.LearningRateSchedule):
    """peak * min(1, step / warmup_steps) * decay(step, progress); progress is 0 after the warmup and 1 at the end.

    As in the official code, the rate of step 0 is 0 if there is a warmup, and after `total_steps` the rate keeps its
    last value.

    Args:
        peak: learning rate at the end of the warmup.
        total_steps: updates of the whole run, with the warmup.
        warmup_steps: updates of the warmup, at least 0 and less than total_steps.
    """

    def __init__(self, peak: float, total_steps: int, warmup_steps: int = 0):
        super().__init__()
        if not 0 <= warmup_steps < total_steps:
            raise ConfigError(
                "A schedule needs 0 <= warmup_steps < total_steps. "
                f"Received: warmup_steps={warmup_steps}, total_steps={total_steps}."
            )
        self.peak = peak
        self.total_steps = total_steps
        self.warmup_steps = warmup_steps

    def __call__(self, step):
        step = ops.cast(step, "float32")
        progress = (step - self.warmup_steps) / (self.total_steps - self.warmup_steps)
        rate = self.peak * self.decay(step, ops.clip(progress, 0.0, 1.0))
        return rate * ops.minimum(1.0, step / self.warmup_steps) if self.warmup_steps else rate

    def get_config(self):
        return {"peak": self.peak, "total_steps": self.total_steps, "warmup_steps": self.warmup_steps}


@keras.saving.register_keras_serializable(package="keras_vit")
class WarmupCosine(Warmup):
    """Linear warmup, then half a cosine to 0.

    >>> round(float(WarmupCosine(0.03, total_steps=10_000, warmup_steps=500)(500)), 4)
    0.03
    """

    def decay(self, step, progress):
        return 0.5 * (1.0 + ops.cos(math.pi * progress))


@keras.saving.register_keras_serializable(package="keras_vit")
class WarmupLinear(Warmup):
    """Linear warmup, then a straight line to `end` (the official code's linear_end, 1e-5).

    >>> round(float(WarmupLinear(1e-3, total_steps=100, warmup_steps=10, end=0.0)(55)), 6)
    0.0005
    """

    def __init__(self, peak: float, total_steps: int, warmup_steps: int = 0, end: float = 1e-5):
        super().__init__(peak, total_steps, warmup_steps)
        self.end = end

    def decay(self, step, progress):
        # vit_jax's decay "linear": end + (base - end) * (1 - progress). A peak below `end` stays.
        end = min(self.end, self.peak)
        return (end + (self.peak - end) * (1.0 - progress)) / self.peak

    def get_config(self):
        return {**super().get_config(), "end": self.end}


@keras.saving.register_keras_serializable(package="keras_vit")
class WarmupConstant(Warmup):
    """Linear warmup, then the peak.

    >>> round(float(WarmupConstant(0.1, total_steps=100, warmup_steps=10)(99)), 4)
    0.1
    """

    def decay(self, step, progress):
        return ops.ones_like(progress)


@keras.saving.register_keras_serializable(package="keras_vit")
class WarmupStaircase(Warmup):
    """Linear warmup, then the peak divided by 10 after each of `boundaries` (BiT-HyperRule: where boundary < step).

    Args:
        boundaries: steps, increasing.

    >>> round(float(WarmupStaircase(0.003, 500, 100, boundaries=(200, 300, 400))(250)), 6)
    0.0003
    """

    def __init__(self, peak: float, total_steps: int, warmup_steps: int = 0, boundaries: Sequence[int] = ()):
        super().__init__(peak, total_steps, warmup_steps)
        self.boundaries = tuple(boundaries)

    def decay(self, step, progress):
        passed = sum((ops.cast(boundary < step, "float32") for boundary in self.boundaries), ops.zeros_like(progress))
        return ops.power(0.1, passed)

    def get_config(self):
        return {**super().get_config(), "boundaries": self.boundaries}


class OptimizerOptions(TypedDict, total=False):
    """Arguments that all three optimizers take, by keyword: ours first, then Keras'."""

    rate_multipliers: Mapping[str, float] | None
    momentum_dtype: str | None
    clipnorm: float | None
    clipvalue: float | None
    global_clipnorm: float | None
    use_ema: bool
    ema_momentum: float
    ema_overwrite_frequency: int | None
    loss_scale_factor: float | None
    gradient_accumulation_steps: int | None
    name: str


@keras.saving.register_keras_serializable(package="keras_vit")
class SGD(GlobalUpdate, keras.optimizers.SGD):
    """Momentum as in the official code: v = momentum * v + g, then w -= rate * v (Keras folds the rate into v).

    The two are the same at a constant learning rate. See the module for the arguments beyond `keras.optimizers.SGD`.

    >>> optimizer = SGD(0.03, momentum=0.9, global_clipnorm=1.0, momentum_dtype="bfloat16")
    """

    def __init__(
        self,
        learning_rate: LearningRate = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float | None = None,
        **options: Unpack[OptimizerOptions],
    ):
        super().__init__(learning_rate, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay, **options)

    def build(self, variables):
        if self.built:
            return
        self.build_without_slots(variables)
        self.momentums = self.add_slots(variables, "momentum", self.momentum_dtype) if self.momentum else []

    def update_step(self, gradient, variable, learning_rate):
        g = step = gradient
        if self.momentum:
            slot = self.momentums[self.index(variable)]
            velocity = self.momentum * ops.cast(slot, g.dtype) + g
            self.store_moment(slot, velocity)
            step = g + self.momentum * velocity if self.nesterov else velocity
        variable.assign_sub(ops.cast(learning_rate, g.dtype) * step)


class AdamStep:
    """Adam's update, shared by Adam and AdamW (arXiv 1412.6980, end of section 2: with epsilon hat)."""

    def build(self, variables):
        if self.built:
            return
        self.build_without_slots(variables)
        self.momentums = self.add_slots(variables, "momentum", self.momentum_dtype)
        self.velocities = self.add_slots(variables, "velocity")
        if self.amsgrad:
            self.velocity_hats = self.add_slots(variables, "velocity_hat")

    def update_step(self, gradient, variable, learning_rate):
        g, dtype, i = gradient, gradient.dtype, self.index(variable)
        rate = ops.cast(learning_rate, dtype)
        t = ops.cast(self.iterations + 1, dtype)
        slot, v = self.momentums[i], self.velocities[i]
        m = ops.cast(slot, dtype)
        m = m + (g - m) * (1 - self.beta_1)
        self.store_moment(slot, m)
        v.assign_add((ops.square(g) - v) * (1 - self.beta_2))
        if self.amsgrad:
            self.velocity_hats[i].assign(ops.maximum(self.velocity_hats[i], v))
            v = self.velocity_hats[i]
        rate = rate * ops.sqrt(1 - ops.power(ops.cast(self.beta_2, dtype), t))
        rate = rate / (1 - ops.power(ops.cast(self.beta_1, dtype), t))
        variable.assign_sub(rate * m / (ops.sqrt(v) + self.epsilon))


@keras.saving.register_keras_serializable(package="keras_vit")
class Adam(AdamStep, GlobalUpdate, keras.optimizers.Adam):
    """Adam, with decoupled decay of kernels if `weight_decay` is given.

    See the module for the arguments beyond `keras.optimizers.Adam`.

    >>> optimizer = Adam(1e-3, weight_decay=0.1, global_clipnorm=1.0)
    """

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        weight_decay: float | None = None,
        **options: Unpack[OptimizerOptions],
    ):
        moments = {"beta_1": beta_1, "beta_2": beta_2, "epsilon": epsilon, "amsgrad": amsgrad}
        super().__init__(learning_rate, weight_decay=weight_decay, **moments, **options)


@keras.saving.register_keras_serializable(package="keras_vit")
class AdamW(AdamStep, GlobalUpdate, keras.optimizers.AdamW):
    """Adam with decoupled weight decay (arXiv 1711.05101) of kernels: w -= rate * weight_decay * w.

    See the module for the arguments beyond `keras.optimizers.AdamW`.

    >>> optimizer = AdamW(3e-3, weight_decay=0.3, global_clipnorm=1.0)
    """

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        weight_decay: float = 0.004,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        **options: Unpack[OptimizerOptions],
    ):
        moments = {"beta_1": beta_1, "beta_2": beta_2, "epsilon": epsilon, "amsgrad": amsgrad}
        super().__init__(learning_rate, weight_decay=weight_decay, **moments, **options)
