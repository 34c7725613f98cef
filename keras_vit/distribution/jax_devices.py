"""Several devices on JAX: keras.distribution with the interface of a tf.distribute strategy.

Keras 3.15 (1) lays out every batch of an epoch like the first, and fails if the devices do not divide the last one;
(2) gives each process only its part of a tf.data.Dataset, and only if TensorFlow knows the batch size; (3) forgets,
outside the scope, on which devices a model was made; (4) leaves a prediction distributed over processes.
"""

import contextlib
import os
import re
import zlib

import jax
import keras
import numpy as np
from jax.experimental import multihost_utils
from keras.src.backend.jax.trainer import JAXEpochIterator

from keras_vit.errors import ConfigError

# The weights of an encoder block that are split over the devices of a group, by heads and by the MLP's hidden units.
# The patterns match whole paths.
SPLIT = {
    r".*/attention/(query|key|value)/kernel": (None, "model"),
    r".*/attention/(query|key|value)/bias": ("model",),
    r".*/attention/out/kernel": ("model", None),
    r".*/mlp/(hidden|gate)/kernel": (None, "model"),
    r".*/mlp/(hidden|gate)/bias": ("model",),
    r".*/mlp/out/kernel": ("model", None),
}


class WholeBatches:
    """A keras.distribution with which every process passes whole batches to `fit`.

    A batch that the devices divide evenly is distributed over them. Any other, such as an epoch's last, is computed
    whole by each device. Either way the step equals that of one device.
    """

    def get_data_layout(self, shape):
        divides = bool(shape) and shape[0] % self.num_model_replicas == 0
        axes = [self.batch_dim_name if divides and not i else None for i in range(len(shape))]
        return keras.distribution.TensorLayout(axes, self.device_mesh)

    def place(self, array):
        """Makes the global array; each process makes the parts for its own devices."""
        if array is None:
            return None
        array = np.asarray(array)
        layout = self.get_data_layout(array.shape).backend_layout
        return jax.make_array_from_callback(array.shape, layout, lambda index: array[index])

    def gather(self, outputs):
        """Copies the outputs of a step whole to every device, so that any process can read them."""
        whole = jax.sharding.NamedSharding(self.device_mesh.backend_mesh, jax.sharding.PartitionSpec())
        return jax.lax.with_sharding_constraint(outputs, whole) if self.num_processes > 1 else outputs

    def require_used(self, model):
        """Refuses a model that this distribution would not split."""


class DataParallel(WholeBatches, keras.distribution.DataParallel):
    """Each device has all weights and its part of the batch."""

    def __init__(self, devices):
        super().__init__(devices=devices, auto_shard_dataset=False)


class ModelParallel(WholeBatches, keras.distribution.ModelParallel):
    """Each group of `size` devices has its part of the batch; the devices of a group share the weights in `SPLIT`."""

    def __init__(self, devices, size):
        shape = (len(devices) // size, size)
        layout = keras.distribution.LayoutMap(keras.distribution.DeviceMesh(shape, ["batch", "model"], devices))
        layout.update(SPLIT)
        super().__init__(layout_map=layout, batch_dim_name="batch", auto_shard_dataset=False)
        self.size = size

    def get_variable_layout(self, variable):
        layout = super().get_variable_layout(variable)
        for axis, width in zip(getattr(layout, "axes", ()), variable.shape, strict=False):
            if axis == "model" and width % self.size:
                raise ConfigError(
                    f"model_parallel={self.size} must divide the widths of the encoder. {variable.path} has the shape "
                    f"{tuple(variable.shape)}."
                )
        return layout

    def require_used(self, model):
        paths = [variable.path for variable in model.variables]
        kernels = [pattern for pattern in SPLIT if pattern.endswith("kernel")]  # a ViT may have none of the biases
        unused = [pattern for pattern in kernels if not any(re.fullmatch(pattern, path) for path in paths)]
        if unused:
            raise ConfigError(
                f"model_parallel={self.size} splits the weights of a ViT's encoder blocks, and {type(model).__name__} "
                f"has none that match {unused[0]!r}: every device would hold the whole model. Leave model_parallel out."
            )


class JaxStrategy:
    """A `WholeBatches`, or None for JAX's default device, with the methods of a tf.distribute strategy."""

    def __init__(self, distribution):
        self.distribution = distribution
        self.num_replicas_in_sync = distribution.num_model_replicas if distribution else 1

    def scope(self):
        return self.distribution.scope() if self.distribution else contextlib.nullcontext()

    def describe(self):
        """The devices in words: "TPU; JAX, 2 processes"."""
        kinds = {device.partition(":")[0].upper() for device in self.distribution.device_mesh.devices.flat}
        processes = f", {jax.process_count()} processes" if jax.process_count() > 1 else ""
        return f"{', '.join(sorted(kinds))}; JAX{processes}"


def make_jax_strategy(devices, model_parallel):
    """Makes the strategy of the named devices (None: all) of all processes that the environment names."""
    several = int(os.environ.get("KERAS_DISTRIBUTION_NUM_PROCESSES") or 1) > 1
    several = several or "," in os.environ.get("TPU_WORKER_HOSTNAMES", "")  # of a TPU pod
    if several and not jax.distributed.is_initialized():
        keras.distribution.initialize()
    if model_parallel > 1 and jax.process_count() > 1:
        raise ConfigError(
            f"model_parallel={model_parallel} works in one process: the first of {jax.process_count()} could not write "
            "weights that others hold. Leave it out."
        )
    found = keras.distribution.list_devices()
    missing = [device for device in devices or () if device.lower() not in found]
    if missing:
        raise ConfigError(f"JAX has no device {missing[0]!r}; it has {', '.join(found)}.")
    devices = [device.lower() for device in devices or found]
    if len(devices) % model_parallel:
        raise ConfigError(
            f"model_parallel must divide the number of devices. Received: model_parallel={model_parallel} and "
            f"{len(devices)} devices."
        )
    parallel = ModelParallel(devices, model_parallel) if model_parallel > 1 else DataParallel(devices)
    return JaxStrategy(parallel)


def require_agreement(batch):
    """Raises a ConfigError if the processes' batches differ: each would train on a part of a different batch."""
    parts = [np.ascontiguousarray(part) for part in keras.tree.flatten(batch) if part is not None]
    own = [zlib.crc32(part.tobytes(), zlib.crc32(str(part.shape).encode())) for part in parts]
    found = multihost_utils.process_allgather(np.array([len(own), zlib.crc32(str(own).encode())], "uint32"))
    if (found != found[0]).any():
        raise ConfigError(
            f"The {len(found)} processes must train on the same batches, but their first ones differ. Give all of them "
            "the same data, batch size and seed, in the same order."
        )


def iterate_batches(iterator, distribution, keras_iterate=JAXEpochIterator._get_distributed_iterator):
    """Replaces Keras' `JAXEpochIterator._get_distributed_iterator`: that lays out all batches like the first."""
    if not isinstance(distribution, WholeBatches):
        yield from keras_iterate(iterator, distribution)
        return
    for i, batch in enumerate(iterator.data_adapter.get_jax_iterator()):
        if i == 0 and jax.process_count() > 1:
            require_agreement(batch)
        yield keras.tree.map_structure(distribution.place, batch)


JAXEpochIterator._get_distributed_iterator = iterate_batches
