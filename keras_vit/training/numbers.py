"""Numbers that a training can have. Imports neither Keras nor TensorFlow."""

import numbers

from keras_vit.errors import ConfigError

LEAST, MOST = 2.0**-126, 3.4e38  # of float32, in which a model trains
TOO_MANY = 2**31


def require_counts(**counts):
    """Raises ConfigError for one that is not a positive whole number; None passes."""
    for name, value in counts.items():
        whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        if value is not None and not (whole and 0 < value < TOO_MANY):
            raise ConfigError(f"{name} must be positive, a whole number below 2 ** 31. Received: {name}={value!r}.")


def require_positive(**values):
    """Raises ConfigError for one that is not a positive number that float32 holds; None passes."""
    for name, value in values.items():
        real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if value is not None and not (real and LEAST <= value <= MOST):
            raise ConfigError(f"{name} must be positive, a number that float32 holds. Received: {name}={value!r}.")
