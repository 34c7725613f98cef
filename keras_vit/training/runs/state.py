"""All that a step of training reads or changes, as arrays and back, on any number of replicas."""

import numpy as np
import tensorflow as tf

from keras_vit.training.errors import RunError


def variables(model):
    """{key: variable}: weights, seeds, optimizer, running metrics."""
    named = [("model", model.variables), ("optimizer", model.optimizer.variables), ("metrics", model.metrics_variables)]
    return {f"{kind}/{i}/{v.path}": v for kind, owned in named for i, v in enumerate(owned)}


def state(model):
    """{key: array} of `variables`; bfloat16 travels as uint16. On several workers all must call it.

    Of a running metric, which every replica sums up for itself, each one's sum: (replicas, *shape). Their total alone
    would give another last bit when it is added to.
    """
    arrays = {key: values(variable, model.distribute_strategy) for key, variable in variables(model).items()}
    return {key: a.view("uint16") if a.dtype.name == "bfloat16" else a for key, a in arrays.items()}


def restore(model, arrays):
    """Puts `arrays` of `state` into the model.

    Raises:
        RunError: when they are not of this model, optimizer and metrics.
    """
    own = variables(model)
    if len(arrays) != len(own):
        raise RunError(
            f"The checkpoint holds {len(arrays)} variables, this model with its optimizer and metrics {len(own)}. "
            "Build and compile it as in the run that wrote the checkpoint."
        )
    numbered = {number(key): array for key, array in arrays.items()}
    pairs = [(key, variable, numbered.get(number(key))) for key, variable in own.items()]
    for key, variable, array in pairs:
        found = None if array is None else array.shape[1:] if summed(key, variable, array) else array.shape
        if found != tuple(variable.shape) or array.dtype != stored_dtype(variable):
            found = "nothing" if array is None else f"{array.dtype} of shape {array.shape}"
            expected = f"{stored_dtype(variable)} of shape {tuple(variable.shape)}"
            raise RunError(f"The checkpoint has {found} for {key}, in place of {expected}.")
    for key, variable, array in pairs:
        if variable.dtype == "bfloat16":
            array = array.view(variable.numpy().dtype)
        if summed(key, variable, array):
            assign_sums(variable, array, model.distribute_strategy)
        else:
            variable.assign(array)


def stored_dtype(variable):
    """Of the variable's array in a checkpoint."""
    return "uint16" if variable.dtype == "bfloat16" else variable.dtype


def number(key):
    """Kind and number of a key, which name a variable: its path counts up within a process."""
    return tuple(key.split("/", 2)[:2])


def summed(key, variable, array):
    """Whether the array has an entry for each replica, the variable being their sum."""
    return key.startswith("metrics/") and array.ndim == len(variable.shape) + 1


def values(variable, strategy):
    """The variable's array, or where every replica has a part of it the parts."""
    if strategy.num_replicas_in_sync == 1 or variable.value.synchronization != tf.VariableSynchronization.ON_READ:
        return np.asarray(variable.numpy())
    n = strategy.num_replicas_in_sync
    # Each part in a row of its own of zeros: summed, since strategy.gather traces a function at each call.
    rows = on_replicas(variable, strategy, lambda replica, part: tf.scatter_nd([[replica]], [part], (n, *part.shape)))
    return strategy.reduce("SUM", rows, axis=None).numpy()


def assign_sums(variable, array, strategy):
    if len(array) == strategy.num_replicas_in_sync:
        on_replicas(variable, strategy, lambda replica, part: part.assign(array[replica]).read_value())
    else:
        variable.assign(array.sum(0))


def on_replicas(variable, strategy, function):
    """function(replica's number, its part of the variable) of this process' replicas, as a value of the strategy."""
    parts = strategy.experimental_local_results(variable.value)

    def call(context):
        replica = context.replica_id_in_sync_group
        return function(replica, parts[replica % len(parts)])

    return strategy.experimental_distribute_values_from_function(call)
