"""Checks the first images of `fit`, `evaluate` and `predict` on the host, before a step."""

import functools
import inspect

import keras


def first_leaf(batch):
    """The images of a batch: its first leaf."""
    return (keras.tree.flatten(batch) or [None])[0]


def watch_dataset(dataset, check):
    """Adds a check of its first batch, if that holds floats, to a dataset."""
    if keras.backend.backend() == "jax":
        for batch in dataset.take(1).as_numpy_iterator():
            check(first_leaf(batch))
        return dataset
    import tensorflow as tf

    spec = tf.nest.flatten(dataset.element_spec)[0]
    if not isinstance(spec, tf.TensorSpec) or spec.dtype == tf.uint8:
        return dataset

    def pass_on(i, batch):
        images = tf.nest.flatten(batch)[0]
        # The mapped function's automatic control dependencies make this run.
        tf.cond(i == 0, lambda: tf.numpy_function(check, [images], tf.bool), lambda: True)
        return batch

    return dataset.enumerate().map(pass_on)


def watch_batches(batches, check):
    for i, batch in enumerate(batches):
        if not i:
            check(first_leaf(batch))
        yield batch


def watch(data, check, several):
    """Checks the first images, at once or as the first batch is read; returns the data to read."""
    if inspect.isgenerator(data):
        return watch_batches(data, check)
    if hasattr(data, "element_spec"):
        return data if several or not hasattr(data, "map") else watch_dataset(data, check)
    if isinstance(data, keras.utils.PyDataset):
        check(first_leaf(data[0]))
    elif hasattr(first_leaf(data), "shape"):
        check(first_leaf(data)[:32])
    return data


def checks_first_batch(method):
    """Decorates `fit`, `evaluate` or `predict` to pass the first images to `self.check_images(images)`.

    For arrays these are the first 32. The first batch of a generator or `tf.data.Dataset` is checked as it is read, so
    that no batch is read twice; a `tf.data.Dataset` is not checked on several replicas. On JAX a dataset's first batch
    is read beforehand: an error inside Keras' loop would leave the model without weights.
    """
    signature = inspect.signature(method)

    @functools.wraps(method)
    def checked(self, *args, **kwargs):
        given, errors = signature.bind(self, *args, **kwargs), []

        def check(images):
            try:
                self.check_images(keras.ops.convert_to_numpy(images))
            except Exception as error:
                errors.append(error)  # tf.data hides it in an error of its own
                raise
            return True

        if kwargs.get("_use_cached_eval_dataset"):  # `fit` evaluates on data that are checked already
            return method(self, *args, **kwargs)
        several = getattr(getattr(self, "distribute_strategy", None), "num_replicas_in_sync", 1) > 1
        for name in given.arguments.keys() & {"x", "validation_data"}:
            given.arguments[name] = watch(given.arguments[name], check, several)
        try:
            return method(*given.args, **given.kwargs)
        except Exception:
            if errors:
                raise errors[0] from None
            raise

    return checked
