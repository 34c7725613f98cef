"""The devices to train on: `strategy` finds the machine's accelerators and prints those it uses."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_vit.distribution.replicas import JAX, TENSORFLOW
from keras_vit.errors import ConfigError, UnknownNameError, describe_install, describe_unknown, require_backend

if TENSORFLOW or TYPE_CHECKING:
    import tensorflow as tf
if JAX or TYPE_CHECKING:
    from keras_vit.distribution.jax_devices import make_jax_strategy

GOOGLE = "0x1ae0"  # among PCI vendors


def count_workers():
    """Workers named in TF_CONFIG (the chief is one)."""
    stated = os.environ.get("TF_CONFIG") or "{}"
    try:
        cluster = json.loads(stated).get("cluster", {})
    except ValueError as error:
        raise ConfigError(
            f'TF_CONFIG must be JSON, as {{"cluster": {{"worker": ["host:port"]}}, ...}}. Received: {stated}.'
        ) from error
    return len(cluster.get("worker", ())) + len(cluster.get("chief", ()))


def has_tpu(root="/"):
    """Whether the environment names a TPU, or a device is Google's: /dev/accelN up to v4, /dev/vfio/N from v5e on.

    Only the vendor is a proof: NVIDIA's drivers from 570 on also make /dev/accelN, and /dev/vfio may have any device.
    """
    root = Path(root)
    vendors = [root / f"sys/class/accel/{device.name}/device/vendor" for device in root.glob("dev/accel[0-9]*")]
    for group in root.glob("dev/vfio/[0-9]*"):
        vendors += root.glob(f"sys/kernel/iommu_groups/{group.name}/devices/*/vendor")
    named = os.environ.get("TPU_NAME") or os.environ.get("TPU_ACCELERATOR_TYPE")  # the latter is set on TPU VMs
    return bool(named) or any(path.is_file() and path.read_text().strip() == GOOGLE for path in vendors)


def detect_kind():
    """The kind of strategy that fits this machine."""
    if has_tpu():
        return "tpu"
    if count_workers() > 1:
        return "multi_worker"
    return "mirrored" if len(tf.config.list_physical_devices("GPU")) > 1 else "one_device"


def require_devices(devices):
    names = [device.name.removeprefix("/device:") for device in tf.config.list_logical_devices()]
    missing = [device for device in devices if device.removeprefix("/").removeprefix("device:") not in names]
    if missing:
        raise ConfigError(f"This machine has no device {missing[0]!r}; it has {', '.join(names)}.")


def make_tpu_strategy(tpu, devices):
    address = tpu or os.environ.get("TPU_NAME") or "local"
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=address)
        if address != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, RuntimeError, OSError, tf.errors.OpError) as error:
        raise ConfigError(
            f"No TPU answers as {address!r}: {str(error).splitlines()[0]} On a TPU machine install tensorflow-tpu "
            f"in an environment without another TensorFlow: {describe_install('tpu')}; see docs/tpu.md."
        ) from error
    return tf.distribute.TPUStrategy(resolver)


def make_multi_worker_strategy(tpu, devices):
    if not count_workers():
        raise ConfigError(
            "The strategy 'multi_worker' reads the workers from TF_CONFIG, but that is not set or names none. "
            'Set on each worker: {"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}.'
        )
    return tf.distribute.MultiWorkerMirroredStrategy()


@functools.cache
def mirror(devices):
    """One strategy for the same devices: a second one in a process would number its sums over replicas as the first."""
    return tf.distribute.MirroredStrategy(devices)


def make_mirrored_strategy(tpu, devices):
    if devices is None:
        kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
        devices = [f"{kind}:{i}" for i in range(len(tf.config.list_logical_devices(kind)))]
    require_devices(devices)
    return mirror(tuple(devices))


def make_one_device_strategy(tpu, devices):
    """TensorFlow's default strategy, since its datasets have plain iterators; OneDeviceStrategy for a named device."""
    if devices is None and not tf.distribute.has_strategy():
        return tf.distribute.get_strategy()
    devices = devices or ["GPU:0" if tf.config.list_logical_devices("GPU") else "CPU:0"]
    require_devices(devices)
    if len(devices) > 1:
        raise ConfigError(f"The strategy 'one_device' takes one device. Received: devices={devices}.")
    return tf.distribute.OneDeviceStrategy(devices[0])


STRATEGIES = {
    "tpu": make_tpu_strategy,
    "multi_worker": make_multi_worker_strategy,
    "mirrored": make_mirrored_strategy,
    "one_device": make_one_device_strategy,
}


def describe_strategy(strategy):
    """The replicas in words: "one replica (CPU)", "2 replicas (GPU; MirroredStrategy)", "8 replicas (TPU; JAX)"."""
    n = strategy.num_replicas_in_sync
    replicas = "one replica" if n == 1 else f"{n} replicas"
    if JAX:
        return f"{replicas} ({strategy.describe()})"
    if strategy is tf.distribute.get_strategy():  # the default strategy has no list of devices
        return f"{replicas} ({'GPU' if tf.config.list_logical_devices('GPU') else 'CPU'})"
    devices = {tf.DeviceSpec.from_string(device).device_type for device in strategy.extended.worker_devices}
    return f"{replicas} ({', '.join(sorted(devices))}; {type(strategy).__name__})"


def strategy(
    kind: str = "auto",
    tpu: str | None = None,
    devices: Sequence[str] | None = None,
    model_parallel: int = 1,
) -> tf.distribute.Strategy | Any:  # `JaxStrategy` with 'jax'
    """Chooses the devices to train on: models, metrics and recipes made in `scope()` train on all of them.

    Args:
        kind: "jax" (all devices that JAX finds, of all processes); on TensorFlow "tpu"; "multi_worker" (the workers of
            the environment's TF_CONFIG; call it before anything else uses TensorFlow); "mirrored" (all GPUs of this
            machine, or all logical CPUs if it has none); "one_device"; "auto" is "jax" if Keras' backend is JAX, else
            the first of the others that the machine has.
        tpu: name or grpc:// address of a TPU; None for $TPU_NAME, else the TPU of this machine ("local").
        devices: for "jax", "mirrored" and "one_device": names such as ["GPU:0", "GPU:1"]; None for all, or the first.
        model_parallel: for "jax": number of devices that share the weights of a ViT's blocks and get the same examples.

    Several processes train together on JAX if each calls this first, with KERAS_DISTRIBUTION_JOB_ADDRESSES,
    KERAS_DISTRIBUTION_NUM_PROCESSES and KERAS_DISTRIBUTION_PROCESS_ID in its environment (not needed on a TPU pod).
    Every process passes the whole batches to `fit`.

    Raises:
        UnknownNameError: if there is no such kind.
        ConfigError: when this machine lacks the TPU, the workers or a device, or Keras' backend does not fit.

    >>> with strategy("auto").scope():
    ...     model = keras_vit.zoo.load("ViT-Test/4", weights=None)
    Training on ... replica...
    """
    kinds = ("auto", "jax", *STRATEGIES)
    if kind not in kinds:
        raise UnknownNameError(describe_unknown("strategy", kind, kinds))
    require_backend("training.strategy", "tensorflow", "jax")
    devices = [devices] if isinstance(devices, str) else devices
    if kind == "jax" or (kind == "auto" and JAX):
        require_backend("The strategy 'jax'", "jax")
        found = make_jax_strategy(devices, model_parallel)
    else:
        require_backend(f"The strategy {kind!r}", "tensorflow")
        if model_parallel != 1:
            raise ConfigError(f"model_parallel={model_parallel} needs the strategy 'jax'. Received: {kind!r}.")
        if kind == "auto" and tpu is None and devices is None:
            kind = detect_kind()
        elif kind == "auto":
            kind = "mirrored" if tpu is None else "tpu"
        found = STRATEGIES[kind](tpu, devices)
    print(f"Training on {describe_strategy(found)}.", flush=True)
    return found
