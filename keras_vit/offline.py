"""Whether any part of the package may use the network."""

import os


def is_offline() -> bool:
    """Whether KERAS_VIT_OFFLINE=1 forbids the network."""
    return os.environ.get("KERAS_VIT_OFFLINE", "").strip().casefold() not in ("", "0", "false", "no")
