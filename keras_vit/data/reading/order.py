"""The order of examples, and the seed of every random draw.

Step k of a run takes positions k * batch, ... of an endless sequence of shuffled epochs. Nothing is stored: the order
follows from the position. The seed of a draw follows from the run's key, the epoch, the number of the example (or of
the step) and a salt, which differs between the draws for one example. So a run sees the same images after it is
resumed, or with another number of hosts. Changing a salt changes the images that every run sees.
"""

import hashlib
from dataclasses import dataclass
from enum import IntEnum

import tensorflow as tf

from keras_vit.errors import DataError

# With the default of 4 the shuffles of neighbouring epochs of 50,000 examples are visibly alike.
ROUNDS = 12


class ExampleSalt(IntEnum):
    """Draws for one visit of one example (`order.example_seed`), below SALTS_PER_EXAMPLE."""

    CROP_BOX = 0  # The part of the image that an inception crop reads.
    FLIP = 1  # Whether the image is mirrored.
    CROP_OFFSET = 2  # The part of the resized image that a crop of fixed size keeps.
    CORRUPTED = 3  # Which patches masked patch prediction corrupts.
    CORRUPTION = 4  # Whether each of them is masked, replaced by another, or kept.
    OTHER_PATCH = 5  # The patch whose embedding replaces it.
    RANDAUGMENT = 8  # The operations of all layers of RandAugment, their sides and places.


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
SALTS_PER_BATCH = 8
WINDOWS_PER_GROUP = 1024  # A group of 8 files has fewer windows of 4096 records.
MIX = 0x6D6978  # "mix" in ASCII; it has the place of the epoch in an example's seed, and is larger than any epoch.


@dataclass(frozen=True)
class Share:
    """The part of every global batch that this host reads: a contiguous piece; together the hosts read all of it."""

    batch_size: int  # examples of the global batch
    host: int = 0
    hosts: int = 1
    replicas: int = 1  # devices, on all hosts together

    def __post_init__(self):
        if self.batch_size < 1 or self.batch_size % self.hosts or self.batch_size % self.replicas:
            raise DataError(
                f"A batch of {self.batch_size} cannot be split evenly over {self.hosts} hosts and {self.replicas} "
                f"replicas. Choose a multiple of both."
            )

    @property
    def per_host(self):
        return self.batch_size // self.hosts

    @property
    def chunk(self):
        """The number of examples that are read in sequence: the largest divisor of the host's batch up to 32."""
        return max((size for size in range(2, 33) if self.per_host % size == 0), default=self.per_host)


def share_of(context, batch_size):
    """The `Share` for a `tf.distribute.InputContext`; for the only host if there is none."""
    if context is None:
        return Share(batch_size)
    return Share(
        batch_size,
        host=context.input_pipeline_id,
        hosts=context.num_input_pipelines,
        replicas=context.num_replicas_in_sync,
    )


def positions(share, start, stop):
    """Dataset of this host's positions from step `start` up to `stop` (None: endless), int64 (chunk,) each."""
    chunks = share.per_host // share.chunk

    def positions_of(chunk):
        # positions among this host's own examples, then among those of all hosts
        own = chunk * share.chunk + tf.range(share.chunk, dtype=tf.int64)
        return own // share.per_host * share.batch_size + share.host * share.per_host + own % share.per_host

    if stop is None:
        return tf.data.Dataset.counter(start * chunks).map(positions_of)
    return tf.data.Dataset.range(start * chunks, stop * chunks).map(positions_of)


def run_key(seed):
    """A key of 63 bits from a run's seed, any int; neighbouring seeds give unrelated keys."""
    return int.from_bytes(hashlib.sha256(f"keras_vit {seed}".encode()).digest()[:8], "little") >> 1


def shuffle(index, epoch, num_examples, key, salt=ShuffleSalt.EPOCH):
    """Shuffles range(num_examples) for an epoch: the places, int64 (n,), of `index`, int64 (n,).

    `epoch` is an int, int64 () or (n,). Another `salt`, an int or int64 () below 2**30, gives another shuffle.

    >>> shuffle(tf.range(5, dtype=tf.int64), 0, 5, run_key(0)).numpy().tolist()
    [4, 3, 2, 1, 0]
    """
    # The op takes 32 bits of each number; key and salt together stay below 2**31.
    low = (key % 2**30) + tf.cast(salt, tf.int64)
    epoch = tf.broadcast_to(tf.cast(epoch, tf.int64), tf.shape(index))
    seed = tf.stack(
        [tf.fill(tf.shape(index), low), tf.fill(tf.shape(index), tf.constant(key >> 32, tf.int64)), epoch], 1
    )
    last = tf.cast(num_examples, tf.int64) - 1
    return tf.raw_ops.RandomIndexShuffle(index=index, seed=seed, max_index=last, rounds=ROUNDS)


def example_seed(key, epoch, index):
    """Seed, int64 (2,), of all random draws for one visit of one example; `add_salt` makes a seed for each draw."""
    # Half the 63 bits of the key, so that adding an epoch does not overflow.
    return tf.stack([key // 2 + tf.cast(epoch, tf.int64), tf.cast(index, tf.int64) * SALTS_PER_EXAMPLE])


def batch_seed(key, step):
    """Seed, int64 (2,), of all random draws for mixing a batch; `step`, int64 (), counts from the run's start."""
    return tf.stack([key // 2 ^ MIX, step * SALTS_PER_BATCH])


def add_salt(seed, salt):
    """The seed (2,) of one draw."""
    return seed + tf.constant([0, salt], tf.int64)
