"""The fine-tuning kit: freezing, LoRA, learning rates that decay by layer, weights of classes, distillation."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_vit.errors import COUNT, ConfigError, require_within
from keras_vit.lora import add_factors, factors_of
from keras_vit.models.folding import fold
from keras_vit.models.preprocessing import Preprocessing, to_probabilities
from keras_vit.models.vectors import forget_traces
from keras_vit.training.recipes import LAYER_DECAY

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from keras_vit.models.classifier import Classifier


HEAD = ("head", "pre_logits")


def layer_decay(model: keras.Model, rate: float) -> dict[str, float]:
    """Factors rate ** (L + 1 - depth) of the learning rate for an optimizer's `rate_multipliers` (arXiv 2106.08254).

    The head and the last norm keep the factor 1; the embeddings have the smallest.

    Args:
        model: a model; its top-level layers have the depths, 0 before the first block and L + 1 after the last. In a
            hybrid the ResNet's blocks come first.
        rate: in (0, 1], such as 0.75.

    Raises:
        ConfigError: if the rate is out of range.

    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None)
    >>> layer_decay(model, 0.5)["^encoder_norm/"]
    1.0
    >>> optimizer = keras_vit.training.SGD(0.03, rate_multipliers=layer_decay(model, 0.75))
    """
    require_within(LAYER_DECAY, rate=rate)
    layers = [layer.name for layer in model.layers if layer.weights]
    blocks = [name for name in layers if re.fullmatch(r"encoderblock_\d+|block\d+_unit\d+", name)]
    depth, depths = 0, {}
    for name in layers:
        if name in blocks:
            depth = blocks.index(name) + 1
        elif blocks and depth == len(blocks):
            depth += 1
        depths[name] = depth
    return {f"^{re.escape(name)}/": rate ** (depth - own) for name, own in depths.items()}


def freeze_first(model: keras.Model, count: int) -> list[str]:
    """Freezes the stem and the first `count` blocks, and returns the names of the layers. Compile the model afterwards.

    Args:
        model: a ViT or hybrid, with the encoder's blocks and everything before them as the stem (patch and position
            embeddings, the hybrid's ResNet); or a ResNet, with its stages as blocks.
        count: from 0, for the stem alone, to all blocks.

    Raises:
        ConfigError: when the model has fewer blocks.

    >>> freeze_first(keras_vit.zoo.load("ViT-Test/4", weights=None), 1)
    ['embedding', 'cls', 'posembed_input', 'encoderblock_0']
    """
    names = [layer.name for layer in model.layers if layer.weights]
    encoder = any(name.startswith("encoderblock_") for name in names)
    pattern = r"encoderblock_(\d+)" if encoder else r"block(\d+)_unit\d+"
    found = {name: match[1] for name in names if (match := re.fullmatch(pattern, name))}
    blocks = list(dict.fromkeys(found.values()))
    if not 0 <= count <= len(blocks):
        kind = "encoder blocks" if encoder else "stages"
        raise ConfigError(f"The model has {len(blocks)} {kind} that can be frozen. Received: {count}.")
    learning = [name for name in found if found[name] in blocks[count:]]
    end = names.index(learning[0]) if learning else names.index([*found][-1]) + 1
    return freeze(model, *map(re.escape, names[:end]))


def freeze(model: keras.Model, *patterns: str, except_for: Sequence[str] = ()) -> list[str]:
    """Makes layers untrainable and returns their names. Compile the model afterwards.

    `model.trainable = True` makes all of them trainable again.

    Args:
        patterns: regular expressions for whole names of top-level layers; none for all layers.
        except_for: patterns of layers to keep trainable.

    Raises:
        ConfigError: when a pattern matches no layer.

    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None)
    >>> freeze(model, except_for=["head"])  # a linear probe
    ['embedding', 'cls', 'posembed_input', 'encoderblock_0', ...]
    """
    names = [layer.name for layer in model.layers if layer.weights]
    for pattern in (*patterns, *except_for):
        if not any(re.fullmatch(pattern, name) for name in names):
            raise ConfigError(f"No layer is named {pattern!r}. Layers with weights: {', '.join(names)}.")
    frozen = [
        name
        for name in names
        if (not patterns or any(re.fullmatch(p, name) for p in patterns))
        and not any(re.fullmatch(p, name) for p in except_for)
    ]
    for name in frozen:
        model.get_layer(name).trainable = False
    return frozen


def dense_layers(model):
    """The dense layers of attention and MLP in every encoder block that is not frozen."""
    blocks = [layer for layer in model.layers if layer.name.startswith("encoderblock_") and layer.trainable]
    for block in blocks:
        attention, mlp = block.attention, block.mlp
        yield from (attention.query, attention.key, attention.value, attention.out)
        yield from filter(None, (mlp.hidden, mlp.gate, mlp.out))


def enable_lora(model: Classifier, rank: int, seed: int = 0) -> None:
    """Trains only the head and, beside each kernel of attention and MLP, two factors of rank `rank`.

    The outputs do not change, since one factor of each pair starts at zero. Call it before `compile`. `zoo.save`,
    exports and the weights of a run contain the products, added to the kernels, and no factors; checkpoints contain
    the factors. Frozen blocks get no factors.

    Args:
        model: a `VisionTransformer` or a hybrid.
        rank: width of the factors; 4 to 16 are usual. Rank 8 on ViT-B/16 trains 1.5 % of the weights.
        seed: seed of the factors that are not zero; they are the same on any number of replicas.

    Raises:
        ConfigError: for a rank that is not a positive number, or above the model's smallest width, or for a model
            whose encoder blocks are missing or frozen, or that has LoRA already.

    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None, num_classes=10)
    >>> enable_lora(model, 2)
    >>> keras_vit.training.count_trainable(model)
    (7818, 142026)
    """
    require_within(COUNT, rank=rank)
    found = list(dense_layers(model))
    if not found:
        raise ConfigError(
            f"LoRA needs encoder blocks that train, and {model.name} has none. Use freeze or layer_decay for a ResNet."
        )
    if any(dense.lora_enabled for dense in found):
        raise ConfigError(f"{model.name} has LoRA already. Load the model again for another rank.")
    narrowest = min(min(dense.kernel.shape) for dense in found)
    if rank > narrowest:
        raise ConfigError(f"The rank of LoRA is at most {model.name}'s smallest width, {narrowest}. Received: {rank}.")
    strategy = getattr(model, "distribute_strategy", None)  # on torch there is none
    with strategy.scope() if strategy else contextlib.nullcontext():
        for i, dense in enumerate(found):
            add_factors(dense, rank, seed + i)
    learning = {id(factor) for dense in found for factor in (dense.lora_kernel_a, dense.lora_kernel_b)}
    learning |= {id(v) for layer in model.layers if layer.name in HEAD for v in layer.weights}
    for weight in model.weights:
        if id(weight) not in learning:
            weight.trainable = False
    forget_traces(model)


def count_trainable(model: keras.Model) -> tuple[int, int]:
    """(number of trainable weights, number of all weights without LoRA's factors).

    >>> count_trainable(keras_vit.zoo.load("ViT-Test/4", weights=None, num_classes=10))
    (142026, 142026)
    """
    trained = sum(math.prod(weight.shape) for weight in model.trainable_weights)
    return trained, model.count_params() - sum(math.prod(factor.shape) for factor in factors_of(model))


def balanced_weights(counts: Sequence[int] | np.ndarray) -> np.ndarray:
    """Weights n / (classes * count), float32, that give every class the same total.

    Their mean over the examples is 1, as for scikit-learn's class_weight="balanced".

    Args:
        counts: number of examples of each class, all above 0, such as `examples.class_counts()`.

    Raises:
        ConfigError: for a class without examples.

    >>> balanced_weights([30, 10])
    array([0.6666667, 2.       ], dtype=float32)
    """
    counts = np.asarray(counts)
    if counts.size == 0 or counts.min() <= 0:
        empty = np.flatnonzero(counts <= 0).tolist()
        raise ConfigError(f"Balanced weights need examples of every class. Received: none of the classes {empty}.")
    return (counts.sum() / (len(counts) * counts)).astype("float32")


def weigh_classes(batches: tf.data.Dataset, weights: Sequence[float] | np.ndarray) -> tf.data.Dataset:
    """Adds weights of the examples to batches (images, labels) for training.

    The losses of this package divide by the sum of the weights in the global batch, on any number of replicas. An
    example with mixed labels has the mean of its classes' weights.

    Args:
        batches: from `examples.train`; labels int (n,), or float (n, classes).
        weights: the weight of each class.

    >>> import tensorflow as tf
    >>> batches = tf.data.Dataset.from_tensors((tf.zeros((2, 8, 8, 3)), tf.constant([0, 1])))
    >>> [w.numpy().tolist() for _, _, w in weigh_classes(batches, [0.5, 2.0])]
    [[0.5, 2.0]]
    """
    import tensorflow as tf

    weights = tf.constant(weights, tf.float32)

    def weigh(images, labels):
        if labels.dtype.is_integer:
            return images, labels, tf.gather(weights, labels)
        return images, labels, tf.linalg.matvec(labels, weights)

    return batches.map(weigh, tf.data.AUTOTUNE, deterministic=True)


def with_answers(batches: tf.data.Dataset, teacher: keras.Model, seen: Preprocessing) -> tf.data.Dataset:
    """Replaces the labels of training batches (images, labels, ...) by the teacher's probabilities for these images.

    "Knowledge distillation: A good teacher is patient and consistent" (arXiv 2106.05237): both see the very same crops
    and mixtures of images ("function matching", section 3), and no labels are used. It takes many epochs.

    Args:
        batches: from `examples.train`, images (n, h, w, c).
        teacher: a model of the same classes; if its image size differs, images are resized for it.
        seen: the preprocessing of the batches, the student's.

    >>> keras_vit.training.recipe("mini-vit", label_smoothing=0).compile(model)  # doctest: +SKIP
    >>> batches = keras_vit.data.load("digits").train(8, model.preprocessing)  # doctest: +SKIP
    >>> model.fit(with_answers(batches, keras_vit.zoo.load("runs/1"), model.preprocessing))  # doctest: +SKIP
    """
    import tensorflow as tf

    folded, own, classes = fold(teacher), teacher.preprocessing, teacher.output_shape[-1]
    if len(own.mean) != len(seen.mean):
        raise ConfigError(
            f"The teacher and the model must see equally many channels. Received: {len(own.mean)} and {len(seen.mean)}."
        )

    def answer(inputs):
        return to_probabilities(folded.predict_on_batch(inputs).astype("float32"), folded)

    def label(images, labels, *weights):
        pixels = images * np.array(seen.std, "float32") + np.array(seen.mean, "float32")
        pixels = tf.clip_by_value(tf.image.resize(pixels, own.image_size, own.interpolation, antialias=True), 0, 1)
        inputs = (pixels - np.array(own.mean, "float32")) / np.array(own.std, "float32")
        answers = tf.ensure_shape(tf.numpy_function(answer, [inputs], tf.float32), (images.shape[0], classes))
        return images, answers, *weights

    return batches.map(label)
