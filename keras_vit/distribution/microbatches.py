"""A replica's batch in microbatches, which are computed one after the other."""

import tensorflow as tf

from keras_vit.errors import ConfigError


def microbatch(tensor, i, count):
    """The i-th of `count` consecutive microbatches, as equal as possible: (n, ...) to (about n / count, ...).

    i may be a tensor. If n is static, so is the result, as XLA requires.

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

    A loop in the graph keeps the activations of one microbatch in memory at a time. TensorFlow could compute unrolled
    iterations in parallel.
    """
    # Only tracing the body shows which weights have a gradient, and None cannot be a variable of the loop. So the body
    # adds zeros for None, and records here which they are.
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
