"""A replica's batch on TensorFlow: its size, an empty one, one that the host holds."""

import keras
import tensorflow as tf


def batch_size(x):
    """The number of examples in a batch, as a float32 scalar; x: a tensor, or a structure of them."""
    return tf.cast(tf.shape(tf.nest.flatten(x)[0])[0], "float32")


def pad_empty_batch(data):
    """The batch, or one example of zeros if it is empty, as a replica's part of a last batch may be.

    TensorFlow's convolutions give empty batches a wrong shape.
    """

    def pad(leaf):
        if leaf is None or leaf.shape[0]:
            return leaf
        missing = tf.cast(tf.equal(tf.shape(leaf)[0], 0), "int32")  # 1 or 0: a condition without a branch
        padded = tf.concat([leaf, tf.zeros((missing, *leaf.shape[1:]), leaf.dtype)], axis=0)
        return tf.ensure_shape(padded, (None, *leaf.shape[1:]))

    return tf.nest.map_structure(pad, data)


def drop_padding(outputs, data):
    """Cuts the outputs for `pad_empty_batch(data)` to the number of examples in data."""
    x = tf.nest.flatten(keras.utils.unpack_x_y_sample_weight(data)[0])[0]
    if x.shape[0]:
        return outputs
    return tf.nest.map_structure(lambda output: output[: tf.shape(x)[0]], outputs)


def distribute_batch(strategy, batch):
    """An iterator over the replicas' parts of one batch on the host."""
    dataset = tf.data.Dataset.from_tensor_slices(keras.utils.pack_x_y_sample_weight(*batch))
    dataset = dataset.batch(len(tf.nest.flatten(batch[0])[0]))
    return iter(strategy.experimental_distribute_dataset(dataset))
