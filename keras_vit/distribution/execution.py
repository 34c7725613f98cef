"""Makes of a model's step what `fit` calls on several replicas: its build, single batches, several steps at once."""

import keras

from keras_vit.distribution.replicas import TENSORFLOW

if TENSORFLOW:
    import tensorflow as tf


def as_symbolic(spec):
    """A KerasTensor in place of one leaf of a dataset's element_spec, for one replica."""
    spec = getattr(spec, "_value_specs", (spec,))[0]  # PerReplicaSpec holds a spec for each local replica
    return keras.KerasTensor(tuple(spec.shape), dtype=keras.backend.standardize_dtype(spec.dtype))


def build_for(model, spec):
    """Creates, as `fit` on data of that element_spec would, optimizer slots, metrics and loss."""
    with model.distribute_strategy.scope():
        model._symbolic_build(data_batch=keras.tree.map_structure(as_symbolic, spec))


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
