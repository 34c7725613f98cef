"""Several steps of TensorFlow's replicas in one call: `steps_per_execution`.

In Keras' function the replicas' steps are under a condition in the loop, and MirroredStrategy cannot synchronize
replicas there. Here only getting the next batch is under a condition.
"""

import tensorflow as tf


def make_several_steps(model, step_function):
    """A function of an iterator that runs up to `steps_per_execution` steps in one call and returns the metrics.

    Each pass through the loop has its batch already.
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
