"""What the commands do: a file per verb. Keras is imported when a command that needs it runs."""

import contextlib
import os
import sys


@contextlib.contextmanager
def standard_error_closed():
    """Discards what is written to standard error, also by C++ code."""
    sys.stderr.flush()
    terminal = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


def import_keras(find_devices: bool = True) -> None:
    """Imports Keras, and finds its devices, without the lines that TensorFlow's C++ prints meanwhile.

    Several workers must know of each other before devices are found: a training does that by itself.
    """
    with standard_error_closed():
        import keras

        if find_devices and keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            tf.config.list_logical_devices()
