"""Checks of the numbers that a training is given. Imports neither Keras nor TensorFlow."""

import numbers
from typing import Any

from keras_vit.errors import ConfigError, is_whole

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
