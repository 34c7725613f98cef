"""What the functions of this room require of a model."""

from typing import Any

from keras_vit.errors import ConfigError


def require_described(model: Any) -> None:
    """Refuses a model that does not say how images become its input, as a Keras model of others does not.

    Raises:
        ConfigError: for such a model.
    """
    if not hasattr(model, "preprocessing") or not hasattr(getattr(model, "config", None), "num_classes"):
        raise ConfigError(
            f"A {type(model).__name__} does not say how images become its input. Expected a model of this package, or "
            "an exported one, as inference.open_classifier opens it."
        )
