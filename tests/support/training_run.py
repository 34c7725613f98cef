"""Run in processes of their own by tests/training/test_runs.py: trains a tiny model in a run folder, to be killed.

python training_run.py FOLDER [KIND [KIT]]   or   python training_run.py serve [KIND [KIT]]

KIND is one_device, mirrored (on two logical CPUs), multi_worker or, with KERAS_BACKEND=jax, jax. KIT is a row of KITS.
"""

import dataclasses
import os
import resource
import sys
import time

import keras
import tensorflow as tf

from keras_vit import models, training
from keras_vit.distribution import DistributedModel

TOTAL, EPOCH, BATCH = 60, 25, 4
RUN_ERROR = 3  # exit status


def batches(step):
    """Batches from `step` on, each made from its number alone."""

    def batch(i):
        images = tf.random.stateless_uniform((BATCH, 16, 16, 3), seed=tf.stack([i, 0]))
        return images, tf.random.stateless_uniform((BATCH,), seed=tf.stack([i, 1]), maxval=4, dtype="int32")

    return tf.data.Dataset.counter(step).map(batch)


def small(dtype=None):
    keras.utils.set_random_seed(0)
    sizes = dict(image_size=16, patch_size=8, hidden_size=16, num_layers=1, num_heads=2, mlp_dim=32, num_classes=4)
    return models.VisionTransformer(dropout_rate=0.2, dtype=dtype, **sizes)


def deep(dtype=None):
    """As `small`, with two blocks, of which stochastic depth skips the second."""
    keras.utils.set_random_seed(0)
    sizes = dict(image_size=16, patch_size=8, hidden_size=16, num_layers=2, num_heads=2, mlp_dim=32, num_classes=4)
    return models.VisionTransformer(dropout_rate=0.2, stochastic_depth_rate=0.5, dtype=dtype, **sizes)


def frozen(dtype=None):
    model = deep(dtype)
    training.freeze_first(model, 1)
    return model


def with_lora(dtype=None):
    model = deep(dtype)
    training.enable_lora(model, 2)
    model.remat = keras.backend.backend() == "tensorflow"
    return model


def weighted(step):
    return training.weigh_classes(batches(step), [0.5, 1.0, 2.0, 3.0])


def without_dropout(dtype=None):
    model = small(dtype)
    return models.VisionTransformer(dataclasses.replace(model.config, dropout_rate=0.0), dtype=dtype)


# {name: (model, batches, arguments of the optimizer)}
KITS = {
    "": (small, batches, {}),
    "same on each engine": (without_dropout, batches, {"momentum_dtype": None}),
    "lora": (with_lora, batches, {"gradient_accumulation_steps": None}),
    "frozen": (frozen, weighted, {"rate_multipliers": {"^encoderblock_1/": 0.75}}),
}


def linear(dtype=None):
    """A model that takes the same batches as `small`, and trains at once."""
    keras.utils.set_random_seed(0)
    images = keras.Input((16, 16, 3))
    features = keras.layers.Dropout(0.2, dtype=dtype)(keras.layers.Flatten()(images))
    return DistributedModel(images, keras.layers.Dense(4, name="head", dtype=dtype)(features))


def compiled(dtype=None, make=small, **kwargs):
    model = make(dtype)
    schedule = training.WarmupCosine(3e-3, TOTAL, warmup_steps=10)
    arguments = {"weight_decay": 0.1, "global_clipnorm": 1.0, "use_ema": True, "ema_momentum": 0.9, **kwargs}
    arguments = {"momentum_dtype": "bfloat16", "gradient_accumulation_steps": 2, **arguments}
    optimizer = training.AdamW(schedule, **arguments)
    model.compile(optimizer, training.SoftmaxLoss(), weighted_metrics=[training.Accuracy()])
    return model


def tiny():
    """A model that trains at once."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((2,))
    model = keras.Model(inputs, keras.layers.Dense(2)(inputs))
    model.compile(training.SGD(0.01, momentum=0.9), training.SoftmaxLoss(), weighted_metrics=["accuracy"])
    return model


def points(step):
    """Batches for `tiny`."""
    return tf.data.Dataset.from_tensors((tf.eye(2), tf.range(2))).repeat()


class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.02)


def main(folder, kind="one_device", kit=""):
    make, train, arguments = KITS[kit]
    if kind == "mirrored":
        cpus = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], cpus)
    with training.strategy(kind).scope():
        run, model = training.Run(folder, every=3), compiled(make=make, **arguments)
    run.fit(model, train, TOTAL, EPOCH, validation=batches(10_000).take(2), resume=True, callbacks=[Slow()])


def serve(kind="one_device", kit=""):
    """Forks a process for each folder read from stdin, so that TensorFlow is imported once; says its id, its status.

    After a tab may come the most bytes that a file of it may have: what is written beyond fails as on a full disk.
    """
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            status = 1
            folder, _, most = line.strip().partition("\t")
            try:
                if most:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (int(most), resource.RLIM_INFINITY))
                main(folder, kind, kit)
                status = 0
            except training.RunError as error:
                print(error, file=sys.stderr)
                status = RUN_ERROR
            except SystemExit as leaving:
                status = leaving.code
            finally:
                sys.stderr.flush()
                os._exit(status)
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    serve(*sys.argv[2:]) if sys.argv[1] == "serve" else main(*sys.argv[1:])
