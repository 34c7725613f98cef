"""Runs steps of models with random weights in a process with a limit of memory."""

import dataclasses
import functools
from typing import Any

from keras_vit.errors import KerasVitError, require_backend
from keras_vit.evaluation.device.measuring import (
    describe_machine,
    free_memory,
    limit_memory,
    name_accelerator,
    resident_memory,
    seconds_per_call,
)
from keras_vit.evaluation.device.process import DoesNotFit, NotMeasured, Process

SEED = 0
SHARE = 0.8  # of the free memory, that a trial may use by default


class DeviceError(KerasVitError, RuntimeError):
    """A model could not be run on the device for a reason other than memory."""


def begin(memory: int | None, memory_on_cpu: int, precision: str) -> tuple[str, bool]:
    """Finds the device and limits its memory; returns (its name, whether it is the processor)."""
    import keras
    import tensorflow as tf

    require_backend("Measuring a device", "tensorflow")
    keras.utils.set_random_seed(SEED)
    keras.config.set_dtype_policy(precision)
    accelerator, gpus = name_accelerator(), tf.config.list_physical_devices("GPU")
    if not accelerator:
        tf.zeros(1).numpy()  # starts TensorFlow's threads; their stacks count, 8 MiB for each core and pool
        limit_memory(memory_on_cpu)
    elif gpus and memory:
        megabytes = tf.config.LogicalDeviceConfiguration(memory_limit=memory // 2**20)
        tf.config.set_logical_device_configuration(gpus[0], [megabytes])
    return describe_machine(accelerator), not accelerator


@functools.cache
def build_step(name, image_size, training):
    """A function from images (n, h, w, c) to a number that depends on the whole step; not on CPUs, XLA compiles it."""
    import keras
    import tensorflow as tf

    from keras_vit.models import build, variant
    from keras_vit.models.folding import fold_in_place

    def make():
        return build(dataclasses.replace(variant(name).config, image_size=image_size))

    model = make() if training else fold_in_place(make(), make)
    optimizer = keras.optimizers.Adam(1e-3)
    if training:
        optimizer.build(model.trainable_variables)

    def infer(images):
        return tf.reduce_sum(tf.cast(model(images, training=False), "float32"))

    def train(images):
        labels = tf.zeros(tf.shape(images)[0], "int32")
        with tf.GradientTape() as tape:
            logits = tf.cast(model(images, training=True), "float32")
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        weights = model.trainable_variables
        optimizer.apply(tape.gradient(loss, weights), weights)
        return loss

    return tf.function(train if training else infer, autograph=False, jit_compile=bool(name_accelerator()))


def make_call(name, image_size, batch_size, training):
    """A function that runs a step on images already on the device, and waits for its end."""
    import tensorflow as tf

    step = build_step(name, image_size, training)
    images = tf.random.uniform((batch_size, image_size, image_size, 3), -1.0, 1.0)
    tf.reduce_sum(images[:1]).numpy()  # waits until the images are on the device
    return lambda: step(images).numpy()


@functools.cache
def warm_up(name: str, image_size: int, batch_size: int, training: bool) -> bool:
    """Compiles a step and runs it once, unless that was done before."""
    make_call(name, image_size, batch_size, training)()
    return True


def time_steps(name: str, image_size: int, batch_size: int, training: bool, least: float) -> float:
    """Mean seconds of a step, over as many steps as fill `least` seconds; without compilation."""
    warm_up(name, image_size, batch_size, training)
    return seconds_per_call(make_call(name, image_size, batch_size, training), least)


class StepsProcess(Process):
    """Runs `warm_up` and `time_steps` in a separate process; memory and precision are as for `measure_speed`."""

    def __init__(self, memory: int | None, precision: str):
        super().__init__(quiet=True)
        self.memory, self.precision, self.runs = memory, precision, 0
        self.device = ""

    def start(self) -> None:
        super().start()
        self.runs, on_cpu = 0, self.memory or int(SHARE * free_memory())
        try:
            self.device, limited = self.call(begin, self.memory, on_cpu, self.precision)
        except NotMeasured as error:
            raise DeviceError(f"The process that runs the models could not begin: {error}") from error
        if limited:
            self.most = resident_memory(self.process.pid) + on_cpu

    def run(self, function, *arguments) -> Any:
        """Calls a function of this module; None if it does not fit, even with nothing else in memory.

        Raises:
            DeviceError: when it fails for another reason.
        """
        for alone in (self.runs == 0, True):
            try:
                result = self.call(function, *arguments)
                self.runs += 1
                return result
            except DoesNotFit:
                self.start()
                if alone:
                    break
            except NotMeasured as error:
                raise DeviceError(f"The model could not be run: {error}") from error
        return None

    def describe(self, training: bool) -> dict[str, Any]:
        """Describes the subject of measurements, for a `Record`."""
        step = "training" if training else "inference"
        return {"device": self.device, "step": step, "precision": self.precision, "memory": self.memory}
