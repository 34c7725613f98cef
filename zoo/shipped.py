"""Weights that come with this package, in weights/: no network, no cache, no lock."""

from pathlib import Path

from keras_vit.errors import CheckpointError
from keras_vit.files import sha256
from keras_vit.zoo.names.rows import PublicCheckpoint

WEIGHTS = Path(__file__).with_name("weights")


def find_shipped(checkpoint: PublicCheckpoint) -> Path:
    """The path of a checkpoint's file in this package, whose bytes are what the registry says.

    Raises:
        CheckpointError: for a file that is missing or has changed.

    >>> from keras_vit.zoo.names.registry import resolve
    >>> find_shipped(resolve("R20x0.5:fashion-mnist")).name
    'R20x0.5-fashion-mnist.npz'
    """
    path = WEIGHTS / str(checkpoint.file)
    try:
        found = sha256(path)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}. It comes with keras-vit: install it again.") from error
    if found != checkpoint.sha256:
        raise CheckpointError(
            f"{path} has the sha256 {found}; the registry has {checkpoint.sha256}. It comes with keras-vit: install it "
            "again."
        )
    return path
