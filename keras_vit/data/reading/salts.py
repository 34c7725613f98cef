"""The salts that make different random draws from one seed (`order`). No TensorFlow here.

Changing a salt changes the images that every run sees, also those of a run that is resumed.
"""

from enum import IntEnum


class ExampleSalt(IntEnum):
    """Draws for one visit of one example (`order.example_seed`), below SALTS_PER_EXAMPLE."""

    CROP_BOX = 0  # The part of the image that an inception crop reads.
    FLIP = 1  # Whether the image is mirrored.
    CROP_OFFSET = 2  # The part of the resized image that a crop of fixed size keeps.
    CORRUPTED = 3  # Which patches masked patch prediction corrupts.
    CORRUPTION = 4  # Whether each of them is masked, replaced by another, or kept.
    OTHER_PATCH = 5  # The patch whose embedding replaces it.
    RANDAUGMENT = 8  # The first layer of RandAugment; each layer has SALTS_PER_LAYER, one per `LayerSalt`.


class LayerSalt(IntEnum):
    """Draws for one layer of RandAugment, added to the layer's own salt."""

    SIGN = 0  # The side to which an image is turned, sheared or moved.
    CUTOUT_Y = 1  # The row of the grey square's centre.
    CUTOUT_X = 2  # The column of the grey square's centre.
    OPERATION = 3  # The operation that the layer applies.


class BatchSalt(IntEnum):
    """Draws for one batch (`order.batch_seed`), below SALTS_PER_BATCH."""

    MIXUP_OR_CUTMIX = 0  # Which of the two a batch gets, if an augmentation has both.
    WEIGHT = 1  # The weight of the images themselves against their partners.
    CENTRE = 2  # The centre of the rectangle that cutmix pastes.


class ShuffleSalt(IntEnum):
    """Shuffles of one epoch (`order.shuffle`), below 2**30."""

    EPOCH = 0  # The order of the examples, or of the files when streaming from disk.
    WINDOWS = 1  # The first window of streamed records; window w of group g adds g * WINDOWS_PER_GROUP + w.


SALTS_PER_EXAMPLE = 64
SALTS_PER_LAYER = 4
SALTS_PER_BATCH = 8
WINDOWS_PER_GROUP = 1024  # A group of 8 files has fewer windows of 4096 records.
MIX = 0x6D6978  # "mix" in ASCII; it has the place of the epoch in an example's seed, and is larger than any epoch.
MOST_LAYERS = (SALTS_PER_EXAMPLE - ExampleSalt.RANDAUGMENT) // SALTS_PER_LAYER  # of RandAugment: 14
