"""Run as a program by tests/distribution/test_replicas.py: trains tiny models alike on some number of replicas.

    python training_worker.py KIND REPLICAS OUT CASE...   (KIND: mirrored, multi_worker, one_device, jax or jax-model)

Writes OUT/CASE.npz: the weights, the loss of every step, and what `evaluate` and `predict` gave.
"""

import sys

import family_models
import keras
import numpy as np
import tensorflow as tf

from keras_vit import data as digits
from keras_vit import models, training
from keras_vit.distribution import DistributedModel
from keras_vit.layers.elementary import Dropout
from keras_vit.layers.fast import memory
from keras_vit.models.vectors import vector_reader

EXAMPLES, BATCH, CLASSES, STEPS = 62, 12, 4, 20
POSITIONS = {
    "relative": {"position_embedding": "relative"},
    "shared": {"position_embedding": "2d", "position_embedding_at": "every-layer-shared", "num_layers": 2},
}


def small(family, dtype=None, dropout_rate=0.0):
    if family == "patches":
        sizes = dict(image_size=16, patch_size=4, hidden_size=16, num_layers=1, num_heads=2, mlp_dim=32)
        return models.VisionTransformer(**sizes, num_classes=CLASSES, classifier="patches")
    if family == "masked patches":
        sizes = dict(image_size=16, patch_size=4, hidden_size=16, num_layers=1, num_heads=2, mlp_dim=32, num_classes=0)
        return training.MaskedPatchModel(models.VisionTransformer(**sizes))
    if family == "two outputs":
        features = small("vit").get_layer("head").input
        outputs = {name: keras.layers.Dense(n, name=name)(features) for name, n in (("a", CLASSES), ("b", 1))}
        return DistributedModel(keras.utils.get_source_inputs(features), outputs)
    if family in family_models.OPTIONS:
        return family_models.made(family, num_classes=CLASSES, image_size=16)[0]
    if family in ("lora", "frozen"):
        return fine_tuned(family)
    if family == "blocks":
        return in_blocks()
    if family == "axial resnet":
        model = models.AxialResNet(image_size=16, depths=(1,), width_factor=0.5, num_classes=CLASSES, dtype=dtype)
    elif family == "axial vit":
        sizes = {"image_size": 16, "patch_size": 8, "hidden_size": 16, "num_layers": 2, "num_heads": 2, "mlp_dim": 32}
        model = models.AxialVisionTransformer(**sizes, num_classes=CLASSES, dropout_rate=dropout_rate, dtype=dtype)
    elif family == "resnet":
        model = models.ResNet(image_size=16, depths=(1,), width_factor=0.5, num_classes=CLASSES, dtype=dtype)
    else:
        backbone = models.BackboneConfig(depths=(1,), width_factor=0.5) if family == "hybrid" else None
        sizes = {"image_size": 16, "patch_size": 2 if backbone else 8, "hidden_size": 16, "num_layers": 1}
        model = models.VisionTransformer(
            **{**sizes, **POSITIONS.get(family, {})},
            num_heads=2,
            mlp_dim=32,
            num_classes=CLASSES,
            dropout_rate=dropout_rate,
            backbone=backbone,
            dtype=dtype,
        )
    return model if isinstance(model, DistributedModel) else DistributedModel(model.inputs, model.outputs)


def fine_tuned(family):
    """A model of which a part learns; all of it has random weights, and LoRA's factors too."""
    sizes = dict(image_size=16, patch_size=8, hidden_size=16, num_layers=2, num_heads=2, mlp_dim=32)
    model = models.VisionTransformer(num_classes=CLASSES, **sizes)
    randomize(model)
    if family == "lora":
        training.enable_lora(model, 2, seed=3)
        model.remat = keras.backend.backend() == "tensorflow"
    else:
        training.freeze_first(model, 1)
    return model


def in_blocks():
    """A model of relative positions whose attention is computed in blocks of two queries."""
    model = small("relative")
    attention = model.get_layer("encoderblock_0").attention
    attention.largest_whole, memory.BLOCK, memory.ROWS = 0, 1, 2
    assert memory.is_too_large(attention, 5)
    return model


def data(one_hot=False, floats=True, weights=False, two=False, masked=False, pixels=False, deferred=False):
    """62 examples in batches of 12: the last batch of a pass has 2, fewer than some have replicas."""
    if deferred:
        augmentation = digits.Augmentation(mixup=0.5, cutmix=0.5)
        return (
            digits.load("digits")
            .train(EXAMPLES, models.Preprocessing((16, 16)), augmentation=augmentation, augment_on="device", steps=1)
            .map(lambda images, labels: (images, labels[:, :CLASSES] + 0.1))
            .unbatch()
            .batch(BATCH)
        )
    if masked:
        return (
            digits.load("digits")
            .with_objective(digits.MaskedPatches(4))
            .train(EXAMPLES, models.Preprocessing((16, 16)), steps=1)
            .unbatch()
            .batch(BATCH)
        )
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, EXAMPLES)
    images = rng.integers(0, 256, (EXAMPLES, 16, 16, 3)).astype("uint8")
    x = (images / 127.5 - 1).astype("float32") if floats else images
    y = np.eye(CLASSES, dtype="float32")[labels] if one_hot else labels
    y = {"a": y, "b": (y[:, None] / CLASSES).astype("float32")} if two else y
    columns = (x, y, rng.uniform(0, 2, EXAMPLES).astype("float32")) if weights else (x, y)
    if pixels:  # more of them count in some images than in others
        counted = rng.uniform(size=(EXAMPLES, 16, 16)) < rng.uniform(size=(EXAMPLES, 1, 1))
        y = np.where(counted, rng.integers(0, CLASSES, counted.shape), 255)
        columns = (x, y, counted.astype("float32"))
    return tf.data.Dataset.from_tensor_slices(columns).batch(BATCH)


def sparse(**kwargs):
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, **kwargs)


def smoothed():
    return keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)


def sigmoid():
    return keras.losses.BinaryCrossentropy(from_logits=True)


def cosine(peak):
    return training.WarmupCosine(peak, STEPS, warmup_steps=5)


# The ResNets learn at rates at which the last bit of a weight does not grow: at 0.1 a ReLU's kink makes 1e-7 to 1e-3.
# Global norms of these models' gradients are near 1 at first, so that clipping at 0.1 is always active.
CASES = {
    "sgd": dict(
        optimizer=lambda: training.SGD(cosine(0.3), momentum=0.9, global_clipnorm=0.1, use_ema=True, ema_momentum=0.9),
        data=dict(floats=False),
    ),
    "sgd-bfloat16": dict(
        family="vit",
        optimizer=lambda: training.SGD(0.1, momentum=0.9, momentum_dtype="bfloat16", global_clipnorm=0.1),
        data=dict(weights=True),
    ),
    "sgd-resnet-weighted": dict(
        family="resnet",
        optimizer=lambda: training.SGD(0.03, momentum=0.9, nesterov=True, weight_decay=1 / 3, clipnorm=0.1),
        loss=lambda: sparse(reduction="mean_with_sample_weight"),
        data=dict(weights=True),
    ),
    "sgd-relative": dict(
        family="relative", optimizer=lambda: training.SGD(cosine(0.3), momentum=0.9, global_clipnorm=0.1)
    ),
    "sgd-blocks": dict(family="blocks", optimizer=lambda: training.SGD(cosine(0.3), momentum=0.9, global_clipnorm=0.1)),
    "adam-accumulation": dict(
        family="shared",
        optimizer=lambda: training.Adam(
            training.WarmupLinear(1e-3, 10, warmup_steps=2), global_clipnorm=0.1, gradient_accumulation_steps=2
        ),
        steps_per_execution=4,
    ),
    "adamw": dict(
        optimizer=lambda: training.AdamW(
            1e-3, weight_decay=0.3, global_clipnorm=0.1, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=6
        ),
        loss=smoothed,
        data=dict(one_hot=True),
    ),
    "adamw-microbatches": dict(
        optimizer=lambda: training.AdamW(1e-3, weight_decay=0.3, global_clipnorm=0.1),
        loss=sigmoid,
        data=dict(one_hot=True),
        microbatches=3,
    ),
    "lora": dict(
        family="lora",
        optimizer=lambda: training.AdamW(1e-2, weight_decay=0.3, global_clipnorm=0.1),
        loss=training.SoftmaxLoss,
        data=dict(weights=True),
        microbatches=3,
    ),
    "frozen": dict(
        family="frozen",
        optimizer=lambda: training.SGD(
            0.1, momentum=0.9, global_clipnorm=0.1, rate_multipliers={"^encoderblock_1/": 0.75}
        ),
        loss=training.SoftmaxLoss,
        data=dict(weights=True),
    ),
    "adam-sum": dict(
        optimizer=lambda: training.Adam(1e-3, global_clipnorm=0.1),
        loss=lambda: sparse(reduction="sum"),
        data=dict(floats=False),
    ),
    "two-outputs": dict(
        family="two outputs",
        optimizer=lambda: training.SGD(0.03, momentum=0.9, global_clipnorm=0.1),
        loss=lambda: {"a": sparse(), "b": keras.losses.MeanSquaredError()},
        metrics={"a": "accuracy", "b": "mae"},
        data=dict(two=True),
    ),
    "axial-vit": dict(family="axial vit", optimizer=lambda: training.SGD(0.1, momentum=0.9, global_clipnorm=0.1)),
    "axial-resnet": dict(
        family="axial resnet", optimizer=lambda: training.SGD(0.01, momentum=0.9, global_clipnorm=0.1)
    ),
    "masked-patches": dict(
        family="masked patches",
        optimizer=lambda: training.Adam(1e-3, global_clipnorm=0.1),
        loss=training.SoftmaxLoss,
        data=dict(masked=True),
        microbatches=3,
    ),
    **{
        family: dict(
            family=family,
            optimizer=lambda: training.AdamW(1e-3, weight_decay=0.3, global_clipnorm=0.1),
            loss=training.SoftmaxLoss,
            microbatches=3,
        )
        for family in family_models.OPTIONS
    },
    "pixels": dict(
        family="patches",
        optimizer=lambda: training.SGD(0.3, momentum=0.9, global_clipnorm=0.1),
        loss=training.PixelLoss,
        metrics=[],
        weighted_metrics=lambda: [
            training.Accuracy(),
            keras.metrics.MeanIoU(CLASSES, "mean_iou", "float32", sparse_y_pred=False),
        ],
        data=dict(pixels=True),
        microbatches=3,
    ),
    "deferred": dict(
        optimizer=lambda: training.SGD(0.1, momentum=0.9, global_clipnorm=0.1),
        loss=training.SoftmaxLoss,
        data=dict(deferred=True),
    ),
    "mixed-bfloat16": dict(
        optimizer=lambda: training.SGD(0.01, global_clipnorm=0.1), dtype="mixed_bfloat16", data=dict(floats=False)
    ),
}


class Losses(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.losses = []

    def on_epoch_end(self, epoch, logs=None):
        self.losses.append(logs["loss"])


def train(case, strategy):
    """(weights by path, losses of the epochs, metrics of evaluate, predictions) after 20 steps in 4 passes."""
    keras.utils.set_random_seed(0)
    case = dict(case)
    kwargs = case.get("data", {})
    with strategy.scope():
        model = small(case.get("family", "vit"), case.get("dtype"))
        randomize(model)
        model.compile(
            case["optimizer"](),
            case.get("loss", sparse)(),
            metrics=case.get("metrics", [training.Accuracy()]),
            weighted_metrics=case.get("weighted_metrics", list)(),
            steps_per_execution=case.get("steps_per_execution", 1),
        )
    model.microbatches = case.get("microbatches", 1)
    losses = Losses()
    model.fit(data(**kwargs), epochs=STEPS // 5, verbose=0, callbacks=[losses])
    weights = {v.path: v.numpy() for v in model.trainable_variables}
    evaluated = model.evaluate(data(**kwargs), verbose=0)
    predicted = model.predict(data(**kwargs).map(lambda x, *_: x), verbose=0)
    predicted = np.concatenate(keras.tree.flatten(predicted), axis=-1)
    return dict(weights, losses=np.array(losses.losses), evaluated=np.array(evaluated), predicted=predicted)


def randomize(model):
    """Weights that do not depend on how many variables the strategy makes, the zero ones included."""
    rng = np.random.default_rng(1)
    for v in model.trainable_variables:
        v.assign(v.numpy() + 0.1 * rng.standard_normal(v.shape).astype("float32"))


def on_batches(strategy):
    """Single batches, of which two overflow float16 in the last replica's part alone."""
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = small("vit", "mixed_float16")
        randomize(model)
        optimizer = training.SGD(0.01, momentum=0.9, global_clipnorm=1.0, use_ema=True, ema_momentum=0.9)
        model.compile(optimizer, sparse(), weighted_metrics=[training.Accuracy()], steps_per_execution=2)
    trained, scales, updates = [], [], []
    for step, (x, y) in enumerate(data().unbatch().batch(11).take(5).repeat(2)):
        x, y, weights = x.numpy(), y.numpy(), np.ones(len(x), "float32")
        weights[-1] = 1e6 if step in (3, 6) else 1.0
        trained.append(model.train_on_batch(x, y, weights))
        scales.append(keras.ops.convert_to_numpy(model.optimizer.dynamic_scale))
        updates.append(keras.ops.convert_to_numpy(model.optimizer.iterations))
    tested = model.test_on_batch(x, y)
    results = dict(trained=trained, scales=scales, updates=updates, tested=tested, predicted=model.predict_on_batch(x))
    with strategy.scope():
        results["vectors"] = vector_reader(model)(x)
    weights = {v.path: keras.ops.convert_to_numpy(v) for v in model.weights}
    return weights | {name: np.array(value) for name, value in results.items()}


def masks(strategy):
    """What each of two runs dropped on each replica: (runs, replicas, 64) of ones scaled or zeroed."""
    runs = []
    for _ in range(2):
        with strategy.scope():
            layer = Dropout(0.5, seed=7)
        results = [
            strategy.run(tf.function(lambda layer=layer: layer(tf.ones((64,)), training=True))) for _ in range(3)
        ]
        runs.append([strategy.experimental_local_results(result) for result in results])
    return dict(masks=np.array(runs))


def reduce_as_tpus():
    """From here on `reduce` multiplies by the float 1 / n, as TPUStrategy's does, which fails for integers."""
    reduce = tf.distribute.Strategy.reduce

    def tpu_reduce(self, reduce_op, value, axis):
        for leaf in tf.nest.flatten(value):
            tf.convert_to_tensor(self.experimental_local_results(leaf)[0]) * (1.0 / self.num_replicas_in_sync)
        return reduce(self, reduce_op, value, axis)

    tf.distribute.Strategy.reduce = tpu_reduce
    try:
        strategy = tf.distribute.get_strategy()
        tpu_reduce(strategy, "MEAN", tf.constant([1]), None)
    except (TypeError, ValueError):
        return
    raise AssertionError("the emulated reduce takes integers")


def main(kind, count, out, *cases):
    if kind in ("mirrored", "one_device"):
        cpus = [tf.config.LogicalDeviceConfiguration()] * int(count)
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], cpus)
    strategy = training.strategy("jax" if kind == "jax-model" else kind, model_parallel=2 if kind == "jax-model" else 1)
    if kind == "mirrored":
        reduce_as_tpus()
    for name in cases:
        other = {"masks": masks, "on-batches": on_batches}.get(name)
        results = other(strategy) if other else train(CASES[name], strategy)
        np.savez(f"{out}/{name}.npz", **results)


if __name__ == "__main__":
    main(*sys.argv[1:])
