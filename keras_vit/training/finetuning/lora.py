"""LoRA (arXiv 2106.09685) for fine-tuning: two thin factors beside each kernel learn in place of the kernel."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING

from keras_vit.errors import ConfigError
from keras_vit.lora import weights_without_lora
from keras_vit.training.numbers import require_counts

if TYPE_CHECKING:
    import keras

    from keras_vit.models.classifier import Classifier

HEAD = ("head", "pre_logits")


def dense_layers(model):
    """The dense layers of attention and MLP in every encoder block that is not frozen."""
    blocks = [layer for layer in model.layers if layer.name.startswith("encoderblock_") and layer.trainable]
    for block in blocks:
        attention, mlp = block.attention, block.mlp
        yield from (attention.query, attention.key, attention.value, attention.out, mlp.hidden, mlp.out)


def add_factors(dense, rank, seed):
    """Keras' LoRA on a dense layer, with variables that are named as its others are."""
    import keras

    with contextlib.ExitStack() as scopes:
        for name in dense.path.split("/")[:-1]:
            scopes.enter_context(keras.name_scope(name))
        dense.enable_lora(rank, a_initializer=keras.initializers.HeUniform(seed=seed))


def enable_lora(model: Classifier, rank: int, seed: int = 0) -> None:
    """Trains, in place of all weights, two factors of `rank` beside each kernel of attention and MLP, and the head.

    The model computes what it did before, since one factor of each pair is zero. Call it in the strategy's scope,
    before `compile`. `zoo.save`, exports and the weights of a run hold the products, added to the kernels, and no
    factors; checkpoints hold the factors. Blocks that are frozen get none.

    Args:
        model: a `VisionTransformer` or a hybrid.
        rank: width of the factors; 4 to 16 are usual. Rank 8 on ViT-B/16 trains 1.5 % of the weights.
        seed: of the factors that are not zero: the same on any number of replicas.

    Raises:
        ConfigError: for a rank that is not a positive number, for a model without encoder blocks that train, or with
            LoRA already.

    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None, num_classes=10)
    >>> enable_lora(model, 2)
    >>> keras_vit.training.count_trainable(model)
    (7818, 142026)
    """
    require_counts(rank=rank)
    found = list(dense_layers(model))
    if not found:
        raise ConfigError(
            f"LoRA needs encoder blocks that train, and {model.name} has none. Use freeze or layer_decay for a ResNet."
        )
    if any(dense.lora_enabled for dense in found):
        raise ConfigError(f"{model.name} has LoRA already. Load the model again for another rank.")
    for i, dense in enumerate(found):
        add_factors(dense, rank, seed + i)
    learning = {id(factor) for dense in found for factor in (dense.lora_kernel_a, dense.lora_kernel_b)}
    learning |= {id(v) for layer in model.layers if layer.name in HEAD for v in layer.weights}
    for weight in model.weights:
        if id(weight) not in learning:
            weight.trainable = False
    model.train_function = model.test_function = model.predict_function = None  # traced without the factors


def count_trainable(model: keras.Model) -> tuple[int, int]:
    """(how many numbers train, how many the model has without LoRA's factors).

    >>> count_trainable(keras_vit.zoo.load("ViT-Test/4", weights=None, num_classes=10))
    (142026, 142026)
    """
    trained = sum(math.prod(weight.shape) for weight in model.trainable_weights)
    return trained, sum(array.size for _, array in weights_without_lora(model))
