"""The data room's own error, and how it comes through TensorFlow."""

import re
from contextlib import contextmanager

from keras_vit.errors import KerasVitError


class DataError(KerasVitError, ValueError):
    """Pictures or labels that nothing can be trained or evaluated on, or a split that is not there."""


@contextmanager
def data_errors():
    """Raises the `DataError` that a dataset met while it was read, which TensorFlow wraps in an error of its own.

    >>> with data_errors():
    ...     model.fit(batches)
    """
    import tensorflow as tf

    try:
        yield
    except tf.errors.OpError as error:
        sentence = re.search(r"^(?:\S+\.)?DataError: (.*)$", str(error), re.MULTILINE)
        if sentence is None:
            raise
        raise DataError(sentence[1]) from error
