"""Learning rates over the steps of a run: linear warmup, then cosine, linear, staircase or constant."""

from __future__ import annotations

import math
from collections.abc import Sequence

import keras
from keras import ops

from keras_vit.errors import ConfigError


class Warmup(keras.optimizers.schedules.LearningRateSchedule):
    """peak * min(1, step / warmup_steps) * decay(progress); progress goes from 0 after the warmup to 1 at the end.

    As in the official code, the rate of step 0 is 0 if there is a warmup, and after `total_steps` the rate keeps its
    last value.

    Args:
        peak: learning rate at the end of the warmup.
        total_steps: updates of the whole run, with the warmup.
        warmup_steps: updates of the warmup, at least 0 and less than total_steps.

    Raises:
        ConfigError: unless 0 <= warmup_steps < total_steps.
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
        # vit_jax's decay "linear": end + (base - end) * (1 - progress).
        return (self.end + (self.peak - self.end) * (1.0 - progress)) / self.peak

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
