"""The process that runs models for `process.DeviceProcess`: requests on stdin, answers on stdout, each a line of JSON.

It is a process of its own, so that whatever it runs out of is its own too, and gone when it is gone.
"""

import json
import os
import sys
import time

SEED = 0


def limit_memory(device, most):
    """Makes allocations beyond `most` bytes fail: of a GPU's memory, or of this process's data on a CPU."""
    import tensorflow as tf

    if device.device_type == "GPU":
        megabytes = tf.config.LogicalDeviceConfiguration(memory_limit=most // 2**20)
        tf.config.set_logical_device_configuration(device, [megabytes])
    elif sys.platform == "linux":
        import resource

        tf.zeros(1).numpy()  # starts TensorFlow's threads, whose stacks count: 8 MiB for each core and pool
        resource.setrlimit(resource.RLIMIT_DATA, (data_bytes() + most, resource.RLIM_INFINITY))


def data_bytes():
    """What this process has of the memory that RLIMIT_DATA limits."""
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmData:"))


def begin(memory, memory_on_cpu, precision):
    """Finds the device and limits its memory; returns what it is."""
    import keras
    import tensorflow as tf

    from keras_vit.errors import require_tensorflow

    require_tensorflow("Measuring a device")
    keras.utils.set_random_seed(SEED)
    keras.config.set_dtype_policy(precision)
    found = [d for kind in ("TPU", "GPU") for d in tf.config.list_physical_devices(kind)]
    device = (found or tf.config.list_physical_devices("CPU"))[0]
    most = memory_on_cpu if device.device_type == "CPU" else memory
    if most:
        limit_memory(device, most)
    details = tf.config.experimental.get_device_details(device) if device.device_type == "GPU" else {}
    name = details.get("device_name") or f"{device.device_type}, {os.cpu_count()} cores"
    return {"device": name, "on_cpu": device.device_type == "CPU", "compiled": device.device_type != "CPU"}


def build_step(name, image_size, training, compiled):
    """A function of images (n, h, w, c) to a number that depends on the whole step, which waits for nothing."""
    import dataclasses

    import keras
    import tensorflow as tf

    from keras_vit.models import build, variant

    model = build(dataclasses.replace(variant(name).config, image_size=image_size))
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

    return tf.function(train if training else infer, autograph=False, jit_compile=compiled)


class Bench:
    """The steps that this process has built, and what they are run on."""

    def __init__(self, memory, memory_on_cpu, precision):
        self.found, self.steps = begin(memory, memory_on_cpu, precision), {}

    def time(self, model, image_size, batch_size, training, calls):
        """Seconds of `calls` steps in a row; the first step of a model and batch size is compiled in it."""
        import tensorflow as tf

        key = (model, image_size, training)
        if key not in self.steps:
            self.steps[key] = build_step(model, image_size, training, self.found["compiled"])
        images = tf.random.uniform((batch_size, image_size, image_size, 3), -1.0, 1.0)
        tf.reduce_sum(images[:1]).numpy()  # they are there
        start = time.perf_counter()
        for _ in range(calls):
            last = self.steps[key](images)
        last.numpy()  # a device takes steps in order, so all are done
        return time.perf_counter() - start


def is_of_memory(error):
    """Whether an error says that memory ran out."""
    import tensorflow as tf

    kinds = (tf.errors.AbortedError, tf.errors.InternalError, tf.errors.UnknownError)
    if isinstance(error, (MemoryError, tf.errors.ResourceExhaustedError)):
        return True
    return isinstance(error, kinds) and any(word in str(error).lower() for word in ("memory", "alloc"))


def serve(requests, answers):
    """Answers each request: the first is what `Bench` takes, the others what its `time` takes."""
    bench = None
    for line in requests:
        try:
            if bench is None:
                bench = Bench(**json.loads(line))
                answer = bench.found
            else:
                answer = {"seconds": bench.time(**json.loads(line))}
        except Exception as error:
            answer = {"error": str(error).partition("\n")[0], "of_memory": bench is not None and is_of_memory(error)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # what libraries print is no answer
        serve(sys.stdin, answers)
