"""Checks on the host, before a step, the first images that `fit`, `evaluate` and `predict` get."""

import functools
import inspect

import keras


def first_leaf(batch):
    """The images of a batch: its first leaf."""
    return (keras.tree.flatten(batch) or [None])[0]


def watch_dataset(dataset, check):
    """The dataset, with a check of its first batch of floats where that is made."""
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
        # Automatic control dependencies of the mapped function see to it that this runs.
        tf.cond(i == 0, lambda: tf.numpy_function(check, [images], tf.bool), lambda: True)
        return batch

    return dataset.enumerate().map(pass_on)


def watch_batches(batches, check):
    for i, batch in enumerate(batches):
        if not i:
            check(first_leaf(batch))
        yield batch


def watch(data, check, several):
    """The data, checked already or when its first batch passes by."""
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
    """`method`, an instance's `fit` or its like, which first has `self.check_images(images)` see the first images.

    Of arrays these are the first 32. A generator's and a `tf.data.Dataset`'s first batch is checked as it passes by, so
    that no batch is read twice; of a `tf.data.Dataset` not on several replicas. On JAX a dataset's is read beforehand:
    an error amid Keras' loop would leave the model there without weights.
    """
    signature = inspect.signature(method)

    @functools.wraps(method)
    def checked(self, *args, **kwargs):
        given, errors = signature.bind(self, *args, **kwargs), []

        def check(images):
            try:
                self.check_images(keras.ops.convert_to_numpy(images))
            except Exception as error:
                errors.append(error)  # which tf.data hides in one of its own
                raise
            return True

        if kwargs.get("_use_cached_eval_dataset"):  # `fit` evaluates on data that are watched already
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
