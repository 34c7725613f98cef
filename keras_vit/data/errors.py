"""The error of data that are unfit or missing."""

from keras_vit.errors import KerasVitError


class DataError(KerasVitError, ValueError):
    """Images or labels are unfit for training or evaluation, or a dataset or split does not exist."""
