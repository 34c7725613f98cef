"""What TensorFlow's replicas compute at once: microbatches, an empty batch, one that the host holds, several steps."""

import keras
import tensorflow as tf

from keras_vit.errors import ConfigError


def batch_size(x):
    """How many examples a batch holds, as a float32 scalar; x: a tensor, or a structure of them."""
    return tf.cast(tf.shape(tf.nest.flatten(x)[0])[0], "float32")


def microbatch(tensor, i, count):
    """The i-th of `count` consecutive microbatches, as equal as can be: (n, ...) to (about n / count, ...).

    i may be a tensor. A static n makes a static result, as XLA needs it.

    Raises:
        ConfigError: when `count` does not divide a static n.
    """
    if tensor is None:
        return None
    tensor = tf.convert_to_tensor(tensor)
    n = tensor.shape[0]
    if n is None:
        n = tf.shape(tensor)[0]
        return tensor[i * n // count : (i + 1) * n // count]
    if n % count:
        raise ConfigError(f"microbatches must divide the batch of each replica. Received: {count} and {n}.")
    return tf.gather(tf.reshape(tensor, (count, n // count, *tensor.shape[1:])), i)


def sum_gradients(compute_gradients, data, weights, count):
    """The sum of `compute_gradients(microbatch)` over the microbatches: one tensor per weight, or None.

    A loop of the graph keeps one microbatch's activations in memory at a time; unrolled, TensorFlow may compute them
    side by side.
    """
    # Which weights have a gradient is known once the body is traced, and None cannot be a variable of the loop: the
    # body adds zeros for None, and leaves the answer here.
    has_gradient = []

    def add(i, sums):
        part = tf.nest.map_structure(lambda leaf: microbatch(leaf, i, count), data)
        gradients = compute_gradients(part)
        has_gradient[:] = [gradient is not None for gradient in gradients]
        gradients = [0.0 if g is None else tf.convert_to_tensor(g) for g in gradients]
        return i + 1, [s + tf.cast(g, s.dtype) for s, g in zip(sums, gradients, strict=True)]

    zeros = [tf.zeros(weight.shape, weight.dtype) for weight in weights]
    sums = tf.while_loop(lambda i, _: i < count, add, (0, zeros), parallel_iterations=1)[1]
    return [s if has else None for s, has in zip(sums, has_gradient, strict=True)]


def pad_empty_batch(data):
    """The batch; if it is empty, as a replica's part of a last batch can be, one example of zeros.

    TensorFlow's convolutions give empty batches a wrong shape.
    """

    def pad(leaf):
        if leaf is None or leaf.shape[0]:
            return leaf
        missing = tf.cast(tf.equal(tf.shape(leaf)[0], 0), "int32")  # 1 or 0: a condition on shapes, without a branch
        padded = tf.concat([leaf, tf.zeros((missing, *leaf.shape[1:]), leaf.dtype)], axis=0)
        return tf.ensure_shape(padded, (None, *leaf.shape[1:]))

    return tf.nest.map_structure(pad, data)


def drop_padding(outputs, data):
    """The outputs for `pad_empty_batch(data)`, as many as data has examples."""
    x = tf.nest.flatten(keras.utils.unpack_x_y_sample_weight(data)[0])[0]
    if x.shape[0]:
        return outputs
    return tf.nest.map_structure(lambda output: output[: tf.shape(x)[0]], outputs)


def distribute_batch(strategy, batch):
    """An iterator of the replicas' parts of one batch that the host holds."""
    dataset = tf.data.Dataset.from_tensor_slices(keras.utils.pack_x_y_sample_weight(*batch))
    dataset = dataset.batch(len(tf.nest.flatten(batch[0])[0]))
    return iter(strategy.experimental_distribute_dataset(dataset))


def make_several_steps(model, step_function):
    """A function of an iterator that runs up to `steps_per_execution` steps in one call and returns the metrics.

    In Keras' own, a condition inside the loop holds the replicas' steps, and MirroredStrategy cannot synchronize
    replicas under a condition. Here the condition holds the next batch alone: each pass through the loop takes a batch
    that is known to be there.
    """
    strategy, count = model.distribute_strategy, model.steps_per_execution

    @tf.function(reduce_retracing=True)
    @tf.autograph.experimental.do_not_convert
    def one_step(data):
        strategy.run(step_function, args=(data,))

    @tf.function(reduce_retracing=True)
    @tf.autograph.experimental.do_not_convert
    def steps(iterator):
        def body(i, batch):
            one_step(batch.get_value())
            # After the last step no batch is taken, which the next call would miss.
            return i + 1, tf.cond(i + 1 < count, iterator.get_next_as_optional, lambda: batch)

        def more(i, batch):
            return (i < count) & batch.has_value()

        return tf.while_loop(more, body, (0, iterator.get_next_as_optional()), parallel_iterations=1)[0]

    def function(iterator):
        if steps(iterator) == 0:
            raise StopIteration
        return model.get_metrics_result()

    return function
