"""What a training refuses, and what can end it. Imports neither Keras nor TensorFlow."""

import numbers
from typing import Any

from keras_vit.errors import ConfigError, KerasVitError, is_whole

LEAST, MOST = 2.0**-126, 3.4e38  # the range of float32, in which a model trains


def require_counts(**counts: Any) -> None:
    """Raises ConfigError unless each is a positive whole number below 2 ** 31, or None."""
    for name, value in counts.items():
        if value is not None and not is_whole(value, least=1):
            raise ConfigError(f"{name} must be positive: a whole number below 2 ** 31. Received: {name}={value!r}.")


def require_positive(**values: Any) -> None:
    """Raises ConfigError unless each is a positive number in the range of float32, or None."""
    for name, value in values.items():
        real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if value is not None and not (real and LEAST <= value <= MOST):
            raise ConfigError(f"{name} must be positive: a number in the range of float32. Received: {name}={value!r}.")


class RunError(KerasVitError, RuntimeError):
    """A run folder that cannot be used, or a run that cannot continue."""


class NotFiniteError(RunError):
    """A loss or weight is NaN or infinite. `step`: the update at which it was seen; `kept`: the last good step."""

    def __init__(self, message: str, step: int, kept: int):
        super().__init__(message)
        self.step = step
        self.kept = kept


class Preempted(SystemExit):
    """The run was stopped by SIGTERM and can be resumed from `step`; ends the process with status 143."""

    def __init__(self, step: int):
        super().__init__(143)
        self.step = step


class Interrupted(KeyboardInterrupt):
    """The run was stopped by Ctrl-C and can be resumed from `step`; the command then ends with status 130."""

    def __init__(self, step: int):
        super().__init__(f"saved at step {step}")
        self.step = step
