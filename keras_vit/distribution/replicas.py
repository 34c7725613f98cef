"""Communication between the replicas of a tf.distribute strategy: sums, finite gradients, logs, values of variables.

On Keras' other backends there is one replica, and these functions do nothing.
"""

import keras
import numpy as np

TENSORFLOW = keras.backend.backend() == "tensorflow"
JAX = keras.backend.backend() == "jax"
if TENSORFLOW:
    import tensorflow as tf
if JAX:
    import jax
    from jax.experimental import multihost_utils


def replica_count():
    """The number of replicas of the strategy in scope."""
    return tf.distribute.get_strategy().num_replicas_in_sync if TENSORFLOW else 1


def replica_id():
    """The number of the running replica of the strategy in scope: an int32 tensor, or 0 if it is the only one."""
    context = tf.distribute.get_replica_context() if TENSORFLOW else None
    return context.replica_id_in_sync_group if context and context.num_replicas_in_sync > 1 else 0


def several_workers(strategy):
    """Whether `strategy` trains on several machines; False for None, as on other backends."""
    if strategy is None:
        return False
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) and strategy.extended._in_multi_worker_mode()


def is_chief(model):
    """Whether this process, as the first or only worker, writes the model's files."""
    if JAX:
        return jax.process_index() == 0
    resolver = model.distribute_strategy.cluster_resolver
    if resolver is None or resolver.task_type is None:
        return True
    return resolver.task_type == "chief" or (resolver.task_type == "worker" and not resolver.task_id)


def any_worker(strategy, read_flag):
    """Whether `read_flag()` is true on any worker; all workers must call this."""
    if JAX:
        return bool(multihost_utils.process_allgather(np.asarray(bool(read_flag()))).any())
    if not several_workers(strategy):
        return bool(read_flag())
    flags = strategy.experimental_distribute_values_from_function(lambda _: tf.constant(float(bool(read_flag()))))
    return bool(strategy.reduce("SUM", flags, axis=None) > 0)


def all_reduce(values, op="SUM"):
    """Sums ("SUM") or averages ("MEAN") each of a list of tensors over the replicas; unchanged for one replica."""
    if replica_count() == 1 or not values or tf.distribute.get_replica_context() is None:
        return list(values)
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp[op], [tf.convert_to_tensor(value) for value in values])


def average_logs(logs):
    """Averages the step's logs (scalars) over the replicas, and gives them the shape that Keras reduces again."""
    if replica_count() == 1:
        return logs
    flat = all_reduce([tf.cast(value, "float32") for value in tf.nest.flatten(logs)], "MEAN")
    if several_workers(tf.distribute.get_strategy()):
        # Keras calls strategy.reduce("MEAN", value, axis=0), which needs that axis.
        flat = [tf.reshape(value, (1,)) for value in flat]
    return tf.nest.pack_sequence_as(logs, flat)


def nan_unless_all_finite(gradients):
    """The replica's gradients, or all NaN if those of any replica are not finite.

    LossScaleOptimizer skips the step and halves the scale if one replica's gradients are not finite. With NaN on every
    replica, all of them do so.
    """
    present = [tf.convert_to_tensor(gradient) for gradient in gradients if gradient is not None]
    finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in present])
    overflows = all_reduce([tf.where(finite, 0.0, 1.0)])[0]
    factor = tf.where(overflows > 0, float("nan"), 1.0)
    return [None if gradient is None else gradient * tf.cast(factor, gradient.dtype) for gradient in gradients]


def map_replicas(variable, strategy, function):
    """Runs function(replica's number, its copy of the variable) on this process' replicas; a value per replica."""
    copies = strategy.experimental_local_results(variable.value)

    def call(context):
        replica = context.replica_id_in_sync_group
        return function(replica, copies[replica % len(copies)])

    return strategy.experimental_distribute_values_from_function(call)


def read_values(variable, strategy):
    """The variable's array; for a running metric on several replicas of TensorFlow all their sums, (replicas, *shape).

    On several workers all of them must call it.
    """
    if JAX:
        value = variable.value
        if not value.is_fully_addressable and not value.is_fully_replicated:
            value = multihost_utils.process_allgather(value, tiled=True)
        return np.asarray(value)
    if strategy.num_replicas_in_sync == 1 or variable.value.synchronization != tf.VariableSynchronization.ON_READ:
        return np.asarray(variable.numpy())
    n = strategy.num_replicas_in_sync
    # Adds up arrays that have each replica's sum in its own row: strategy.gather would trace at each call.
    rows = map_replicas(variable, strategy, lambda replica, own: tf.scatter_nd([[replica]], [own], (n, *own.shape)))
    return strategy.reduce("SUM", rows, axis=None).numpy()


def assign_per_replica(variable, array, strategy):
    """Gives each replica its sum of `read_values`, (replicas, *shape)."""
    if TENSORFLOW and len(array) == strategy.num_replicas_in_sync:
        map_replicas(variable, strategy, lambda replica, own: own.assign(array[replica]).read_value())
    else:
        # The run continues on another number of replicas, so only the total matters.
        variable.assign(array.sum(0))


def as_symbolic(spec):
    """A KerasTensor for one replica from a leaf of a dataset's element_spec; None, such as no weights, stays."""
    spec = getattr(spec, "_value_specs", (spec,))[0]  # PerReplicaSpec holds a spec for each local replica
    if not hasattr(spec, "shape"):
        return None
    return keras.KerasTensor(tuple(spec.shape), dtype=keras.backend.standardize_dtype(spec.dtype))


def build_for(model, spec):
    """Creates optimizer slots, metrics and loss, as `fit` would for data of this element_spec."""
    with model.distribute_strategy.scope():
        model._symbolic_build(data_batch=keras.tree.map_structure(as_symbolic, spec))
