"""All that a training step reads or changes, as arrays and back, on any number of replicas."""

from keras_vit.distribution.replicas import assign_per_replica, read_values
from keras_vit.training.errors import RunError


def list_variables(model):
    """{key: variable}: weights, seeds, optimizer, running metrics."""
    named = [("model", model.variables), ("optimizer", model.optimizer.variables), ("metrics", model.metrics_variables)]
    return {f"{kind}/{i}/{v.path}": v for kind, owned in named for i, v in enumerate(owned)}


def key_number(key):
    """("optimizer", "3") of "optimizer/3/path": the path is left out, since its counters depend on the process."""
    return tuple(key.split("/", 2)[:2])


def stored_dtype(variable):
    """The dtype of the variable's array in a checkpoint."""
    return "uint16" if variable.dtype == "bfloat16" else variable.dtype


def is_per_replica(key, variable, array):
    """Whether the array has an entry for each replica, whose sum the variable is."""
    return key.startswith("metrics/") and array.ndim == len(variable.shape) + 1


def collect_state(model):
    """{key: array} of the model's variables; on several workers all of them must call it.

    numpy cannot save bfloat16, which is stored as uint16. Running metrics are stored per replica, (replicas, *shape):
    restoring their total alone would change the last bit of later sums.
    """
    arrays = {key: read_values(variable, model.distribute_strategy) for key, variable in list_variables(model).items()}
    return {key: a.view("uint16") if a.dtype.name == "bfloat16" else a for key, a in arrays.items()}


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
            array = array.view(variable.numpy().dtype)
        if is_per_replica(key, variable, array):
            assign_per_replica(variable, array, model.distribute_strategy)
        else:
            variable.assign(array)
