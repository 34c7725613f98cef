"""Which example comes when, and the seed of everything drawn at random.

Step k of a run takes positions k * batch ... of an endless row of shuffled epochs. Nothing is stored: the order follows
from a position's number, and every draw from a seed that is made of the run's key, the epoch and the example's number
(or the step's), plus a salt that tells the draws of one example apart. A run that is resumed, or read by another number
of hosts, therefore sees the same images.
"""

import hashlib
from dataclasses import dataclass

import tensorflow as tf

from keras_vit.data.errors import DataError
from keras_vit.data.reading.salts import MIX, SALTS_PER_BATCH, SALTS_PER_EXAMPLE, ShuffleSalt

# With the default of 4 the shuffles of neighbouring epochs of 50,000 examples are visibly alike.
ROUNDS = 12


@dataclass(frozen=True)
class Share:
    """The part of every global batch that this host reads: a contiguous piece, so that hosts together read it once.

    Args:
        batch_size: examples of the global batch.
        host: this host's number, from 0.
        hosts: how many hosts read.
        replicas: how many devices the global batch is split over, on all hosts together.

    Raises:
        DataError: when the batch cannot be split evenly.
    """

    batch_size: int
    host: int = 0
    hosts: int = 1
    replicas: int = 1

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
        """Examples that are read one after another: the largest divisor of the host's batch up to 32, if any."""
        sizes = [size for size in range(2, 33) if self.per_host % size == 0]
        return sizes[-1] if sizes else self.per_host


def share_of(context, batch_size):
    """The `Share` of a `tf.distribute.InputContext`; without one, of the only host."""
    if context is None:
        return Share(batch_size)
    return Share(
        batch_size,
        host=context.input_pipeline_id,
        hosts=context.num_input_pipelines,
        replicas=context.num_replicas_in_sync,
    )


def positions(share, start, stop):
    """Dataset of this host's positions from step `start` to before `stop` (None: endless), int64 (chunk,) each."""
    chunks = share.per_host // share.chunk

    def positions_of(chunk):
        # Counted among the host's own examples, then among those of all hosts: of each batch the host's part.
        own = chunk * share.chunk + tf.range(share.chunk, dtype=tf.int64)
        return own // share.per_host * share.batch_size + share.host * share.per_host + own % share.per_host

    if stop is None:
        return tf.data.Dataset.counter(start * chunks).map(positions_of)
    return tf.data.Dataset.range(start * chunks, stop * chunks).map(positions_of)


def run_key(seed):
    """63 bits of a run's seed, any int: neighbouring seeds give unrelated keys."""
    return int.from_bytes(hashlib.sha256(f"keras_vit {seed}".encode()).digest()[:8], "little") >> 1


def shuffle(index, epoch, num_examples, key, salt=ShuffleSalt.EPOCH):
    """Where `index`, int64 (n,), goes in its epoch's shuffle of range(num_examples): int64 (n,).

    `epoch` is an int, int64 () or (n,). `salt`, an int or int64 () below 2**30, is for another shuffle of the epoch.

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
    """Seed (2,) int64 of everything random about one visit of one example; `add_salt` makes one per draw of it."""
    # Half the 63 bits of the key, so that adding an epoch does not overflow.
    return tf.stack([key // 2 + tf.cast(epoch, tf.int64), tf.cast(index, tf.int64) * SALTS_PER_EXAMPLE])


def batch_seed(key, step):
    """Seed (2,) int64 of everything random about the mixing of a batch; `step` int64 () counts from the run's start."""
    return tf.stack([key // 2 ^ MIX, step * SALTS_PER_BATCH])


def redraw_index(index, num_examples):
    """A number that belongs to no example, for other draws of example `index` in the same epoch."""
    return index + num_examples


def add_salt(seed, salt):
    """The seed (2,) of one draw."""
    return seed + tf.constant([0, salt], tf.int64)
