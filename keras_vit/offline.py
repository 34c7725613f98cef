"""Whether the network may be used, in every room."""

import os


def is_offline():
    """True where KERAS_VIT_OFFLINE=1 forbids the network."""
    return os.environ.get("KERAS_VIT_OFFLINE", "").strip().casefold() not in ("", "0", "false", "no")
