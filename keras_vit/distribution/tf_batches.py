"""Batches of TensorFlow: a check of the first, a replica's part of one, its microbatches, and several in one call."""

import keras
import tensorflow as tf

from keras_vit.errors import ConfigError


def check_first(dataset, check):
    """The dataset, which passes the first tensor of its first batch, if that holds floats, to `check` on the host.

    The batch is checked as it is read, so that none is read twice. On JAX it is read beforehand: an error inside Keras'
    loop would leave the model without weights.
    """
    spec = tf.nest.flatten(dataset.element_spec)[0]
    if not isinstance(spec, tf.TensorSpec) or spec.dtype == tf.uint8:
        return dataset
    if keras.backend.backend() == "jax":
        for batch in dataset.take(1).as_numpy_iterator():
            check(tf.nest.flatten(batch)[0])
        return dataset

    def pass_on(i, batch):
        images = tf.nest.flatten(batch)[0]
        # The mapped function's automatic control dependencies make this run.
        tf.cond(i == 0, lambda: tf.numpy_function(check, [images], tf.bool), lambda: True)
        return batch

    return dataset.enumerate().map(pass_on)


def is_known_to_have_examples(x):
    """Whether the static shape says so; true of an unknown one, which Keras refuses later."""
    shape = tf.TensorShape(x.shape)
    return shape.rank is None or bool(shape[0])


def pad_empty_batch(data):
    """The batch, or one example of zeros if it is empty, as a replica's part of a last batch may be.

    TensorFlow's convolutions give empty batches a wrong shape.
    """

    def pad(leaf):
        if leaf is None or is_known_to_have_examples(leaf):
            return leaf
        missing = tf.cast(tf.equal(tf.shape(leaf)[0], 0), "int32")  # 1 or 0: a condition without a branch
        shape = tf.concat([[missing], tf.shape(leaf)[1:]], axis=0)  # of images of any size only known now
        padded = tf.concat([leaf, tf.zeros(shape, leaf.dtype)], axis=0)
        return tf.ensure_shape(padded, (None, *leaf.shape[1:]))

    return tf.nest.map_structure(pad, data)


def drop_padding(outputs, data):
    """Cuts the outputs for `pad_empty_batch(data)` to the number of examples in data."""
    x = tf.nest.flatten(keras.utils.unpack_x_y_sample_weight(data)[0])[0]
    if is_known_to_have_examples(x):
        return outputs
    return tf.nest.map_structure(lambda output: output[: tf.shape(x)[0]], outputs)


def distribute_batch(strategy, batch):
    """An iterator over the replicas' parts of one batch on the host."""
    dataset = tf.data.Dataset.from_tensor_slices(keras.utils.pack_x_y_sample_weight(*batch))
    dataset = dataset.batch(len(tf.nest.flatten(batch[0])[0]))
    return iter(strategy.experimental_distribute_dataset(dataset))


def microbatch(tensor, i, count):
    """The i-th of `count` consecutive microbatches, as equal as possible: (n, ...) to (about n / count, ...).

    i may be a tensor. If n is static, so is the result, as XLA requires.
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
    shape = tf.concat([[count, n // count], tf.shape(tensor)[1:]], axis=0)
    return tf.ensure_shape(tf.gather(tf.reshape(tensor, shape), i), (n // count, *tensor.shape[1:]))


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


def make_several_steps(model, step_function):
    """A function of an iterator that runs up to `steps_per_execution` steps in one call and returns the metrics.

    In Keras' function the replicas' steps are under a condition in the loop, and MirroredStrategy cannot synchronize
    replicas there. Here each pass through the loop has its batch already, and only the getting of the next is
    under a condition.
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
            # After the last step no batch is taken: it would be lost for the next call.
            return i + 1, tf.cond(i + 1 < count, iterator.get_next_as_optional, lambda: batch)

        def more(i, batch):
            return (i < count) & batch.has_value()

        return tf.while_loop(more, body, (0, iterator.get_next_as_optional()), parallel_iterations=1)[0]

    def function(iterator):
        if steps(iterator) == 0:
            raise StopIteration
        return model.get_metrics_result()

    return function
