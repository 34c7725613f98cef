"""Errors and interruptions of a training. Imports neither Keras nor TensorFlow."""

import numbers
from typing import Any, NamedTuple

from keras_vit.errors import LARGEST, ConfigError, KerasVitError


class Range(NamedTuple):
    """The range of an argument, from `least` to `most`, and its description in errors and documentation."""

    least: float
    most: float
    text: str
    whole: bool = False

    def __contains__(self, value: object) -> bool:
        kind = numbers.Integral if self.whole else numbers.Real
        return isinstance(value, kind) and not isinstance(value, bool) and bool(self.least <= value <= self.most)  # type: ignore[operator]


COUNT = Range(1, LARGEST, "positive: a whole number below 2 ** 31", whole=True)
POSITIVE = Range(2.0**-126, 3.4e38, "positive: a number in the range of float32")  # in which a model trains


def require_within(allowed: Range, **values: Any) -> None:
    """Raises ConfigError unless each value is in the range, or None."""
    for name, value in values.items():
        if value is not None and value not in allowed:
            raise ConfigError(f"{name} must be {allowed.text}. Received: {name}={value!r}.")


class RunError(KerasVitError, RuntimeError):
    """A run's folder cannot be used, or a run cannot continue."""


class NotFiniteError(RunError):
    """A loss or weight is NaN or infinite. `step`: the update of its detection; `kept`: the last good step."""

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
