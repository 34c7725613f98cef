"""Saves and restores, as arrays, all that a training step reads or changes, on any number of replicas."""

import numpy as np

from keras_vit.distribution.replicas import assign_per_replica, read_values
from keras_vit.training.errors import RunError


def list_variables(model):
    """{key: variable}: weights, seeds, optimizer, running metrics."""
    named = [("model", model.variables), ("optimizer", model.optimizer.variables), ("metrics", model.metrics_variables)]
    return {f"{kind}/{i}/{v.path}": v for kind, owned in named for i, v in enumerate(owned)}


def key_number(key):
    """("optimizer", "3") of "optimizer/3/path": the path is left out, since its counters depend on the process."""
    return tuple(key.split("/", 2)[:2])


# The dtypes of variables that are others in a checkpoint. numpy cannot save bfloat16; TensorFlow counts steps in int64,
# JAX in int32.
STORED = {"bfloat16": "uint16", "int32": "int64"}


def stored_dtype(variable):
    """The dtype of the variable's array in a checkpoint."""
    return STORED.get(variable.dtype, variable.dtype)


def to_stored(array):
    if array.dtype.name == "bfloat16":
        return array.view("uint16")
    return array.astype(STORED.get(array.dtype.name, array.dtype))


def is_per_replica(key, variable, array):
    """Whether the array has an entry for each replica; the variable is their sum."""
    return key.startswith("metrics/") and array.ndim == len(variable.shape) + 1


def collect_state(model):
    """{key: array} of the model's variables; on several workers all of them must call it.

    On several replicas of TensorFlow, running metrics are stored per replica, (replicas, *shape): restoring only their
    total would change the last bit of later sums.
    """
    strategy = model.distribute_strategy
    return {key: to_stored(read_values(variable, strategy)) for key, variable in list_variables(model).items()}


def check_array(key, variable, array):
    """Refuses an array of another shape or dtype than the variable's."""
    found = None if array is None else array.shape[1:] if is_per_replica(key, variable, array) else array.shape
    if found == tuple(variable.shape) and array.dtype == stored_dtype(variable):
        return
    found = "nothing" if array is None else f"{array.dtype} of shape {array.shape}"
    expected = f"{stored_dtype(variable)} of shape {tuple(variable.shape)}"
    raise RunError(
        f"The checkpoint has {found} for {key}; expected {expected}. Build and compile the model as in the run that "
        "wrote the checkpoint."
    )


def restore_state(model, arrays):
    """Puts the arrays of `collect_state` into the model, once all of them are known to fit.

    Raises:
        RunError: when they belong to another model, optimizer or metrics.
    """
    own = list_variables(model)
    if len(arrays) != len(own):
        raise RunError(
            f"The checkpoint has {len(arrays)} variables; this model with its optimizer and metrics has {len(own)}. "
            "Build and compile the model as in the run that wrote the checkpoint."
        )
    numbered = {key_number(key): array for key, array in arrays.items()}
    rows = [(key, variable, numbered.get(key_number(key))) for key, variable in own.items()]
    for row in rows:
        check_array(*row)
    for key, variable, array in rows:
        if variable.dtype == "bfloat16":
            array = array.view(np.asarray(variable).dtype)
        if is_per_replica(key, variable, array):
            assign_per_replica(variable, array, model.distribute_strategy)
        else:
            variable.assign(array)
