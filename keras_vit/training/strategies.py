"""Where a model trains: `strategy` finds the machine's accelerators and says what it took."""

import glob
import json
import os

import tensorflow as tf

from keras_vit.errors import ConfigError, UnknownNameError, describe_unknown, require_tensorflow

KINDS = ("auto", "tpu", "multi_worker", "mirrored", "one_device")


def strategy(kind="auto", tpu=None, devices=None):
    """A tf.distribute strategy; models, metrics and recipes made in its `scope()` train on all its replicas.

    Args:
        kind: "tpu"; "multi_worker" (the workers of the environment's TF_CONFIG; call it before anything else touches
            TensorFlow); "mirrored" (all GPUs of this machine, or without one all logical CPUs); "one_device"; "auto"
            takes the first of these that the machine has.
        tpu: name or grpc:// address of a TPU; None for $TPU_NAME, else the TPU of this machine ("local").
        devices: for "mirrored" and "one_device": names such as ["GPU:0", "GPU:1"]; None for all, or the first.

    Raises:
        UnknownNameError: for another kind.
        ConfigError: when the machine has no such thing.

    >>> with strategy("auto").scope():
    ...     model = keras_vit.zoo.load("ViT-B/16")
    """
    if kind not in KINDS:
        raise UnknownNameError(describe_unknown("strategy", kind, KINDS))
    require_tensorflow("training.strategy")
    taken = found() if kind == "auto" and tpu is None and devices is None else kind
    if taken == "auto":
        taken = "tpu" if tpu is not None else "mirrored"
    make = {"tpu": lambda: on_tpu(tpu), "multi_worker": multi_worker, "mirrored": lambda: mirrored(devices)}
    strategy = make.get(taken, lambda: one_device(devices))()
    print(f"Training on {described(strategy)}.", flush=True)
    return strategy


def found():
    """The kind of strategy that fits this machine."""
    if os.environ.get("TPU_NAME") or glob.glob("/dev/accel[0-9]*"):
        return "tpu"
    if workers() > 1:
        return "multi_worker"
    return "mirrored" if len(tf.config.list_physical_devices("GPU")) > 1 else "one_device"


def workers():
    """Workers named by TF_CONFIG (the chief is one)."""
    cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {})
    return len(cluster.get("worker", ())) + len(cluster.get("chief", ()))


def on_tpu(tpu):
    address = tpu or os.environ.get("TPU_NAME") or "local"
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=address)
        if address != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, RuntimeError, OSError, tf.errors.OpError) as error:
        raise ConfigError(
            f"No TPU answers as {address!r}: {str(error).splitlines()[0]} On a TPU machine install keras-vit-zoo[tpu] "
            "(tensorflow-tpu) in an environment without another TensorFlow; see docs/tpu.md."
        ) from error
    return tf.distribute.TPUStrategy(resolver)


def multi_worker():
    if not workers():
        raise ConfigError(
            "The strategy 'multi_worker' reads the workers from TF_CONFIG, which is not set or names none. "
            'Set on each worker: {"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}.'
        )
    return tf.distribute.MultiWorkerMirroredStrategy()


def mirrored(devices):
    if devices is None:
        kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
        devices = [f"{kind}:{i}" for i in range(len(tf.config.list_logical_devices(kind)))]
    known(devices)
    return tf.distribute.MirroredStrategy(list(devices))


def one_device(devices):
    devices = devices or ["GPU:0" if tf.config.list_logical_devices("GPU") else "CPU:0"]
    known(devices)
    if len(devices) > 1:
        raise ConfigError(f"The strategy 'one_device' takes one device. Received: devices={devices}.")
    return tf.distribute.OneDeviceStrategy(devices[0])


def known(devices):
    names = [device.name.removeprefix("/device:") for device in tf.config.list_logical_devices()]
    missing = [device for device in devices if device.removeprefix("/").removeprefix("device:") not in names]
    if missing:
        raise ConfigError(f"This machine has no device {missing[0]!r}; it has {', '.join(names)}.")


def described(strategy):
    n = strategy.num_replicas_in_sync
    replicas = "one replica" if n == 1 else f"{n} replicas"
    devices = {tf.DeviceSpec.from_string(device).device_type for device in strategy.extended.worker_devices}
    return f"{replicas} ({', '.join(sorted(devices))}; {type(strategy).__name__})"
