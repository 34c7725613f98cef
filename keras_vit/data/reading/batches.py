"""Which batches of a run are read, and how they are spread over its devices."""

import tensorflow as tf

from keras_vit.data.errors import DataError


def first_step(start, steps, steps_per_epoch):
    """The step that `start`, a step or (epoch, step), means; from 0 to `steps`."""
    step = start[0] * steps_per_epoch + start[1] if isinstance(start, (tuple, list)) else int(start)
    if step < 0 or (steps is not None and step > steps):
        raise DataError(f"start must be a step from 0 to steps={steps}. Received: {start}.")
    return step


def distribute(batches, share, context, steps):
    """Batches of one replica's size, as many as `steps` (None: endless), read ahead.

    With a `context` the batches are the host's own and are not sharded a second time. Without one they are global, and
    sharded batch by batch, so that several workers together train on what one would.
    """
    if share.replicas > share.hosts:
        batches = batches.rebatch(share.batch_size // share.replicas, drop_remainder=True)
    if steps is not None:
        # Without it their number is unknown, since errors may drop elements, and Keras warns where they end.
        batches = batches.apply(tf.data.experimental.assert_cardinality(steps * max(1, share.replicas // share.hosts)))
    policies, options = tf.data.experimental.AutoShardPolicy, tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policies.DATA if context is None else policies.OFF
    # A strategy's iterator would optimize the graph anew in every epoch, ten seconds for nothing gained.
    options.experimental_optimization.apply_default_optimizations = False
    batches = batches.with_options(options)
    return batches.prefetch(tf.data.AUTOTUNE)
