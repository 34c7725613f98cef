"""Models of Keras 3, ours and the peers', on TensorFlow and JAX, as functions that wait for their result."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from benchmarks.subjects import Case
from keras_vit.models import ResNetConfig, ViTConfig, build, variant
from keras_vit.models.folding import fold_in_place


def configure(case: Case) -> ViTConfig | ResNetConfig:
    """The configuration of a case's model, for its image size; sets the case's precision for all of Keras."""
    keras.config.set_dtype_policy(case.precision)
    return dataclasses.replace(variant(case.model).config, image_size=(case.image_size, case.image_size))


def compile_call(call: Callable[..., Any], given: Sequence[Any], by_xla: bool = False) -> Callable[[], object]:
    """`call(*given)` as a compiled function of no argument that waits for its result; on JAX always by XLA."""
    if keras.backend.backend() == "jax":
        import jax

        compiled = jax.jit(call)
        return lambda: jax.block_until_ready(compiled(*given))
    import tensorflow as tf

    compiled = tf.function(call, autograph=False, jit_compile=by_xla)
    return lambda: compiled(*given).numpy()


def infer(model: keras.Model, images: np.ndarray, by_xla: bool = False) -> Callable[[], object]:
    """Inference of a batch; our models are folded, as they are where a name is opened for predictions."""
    model = fold_in_place(model, restore=lambda: model)
    images = keras.ops.convert_to_tensor(images)
    if keras.backend.backend() != "jax":
        return compile_call(lambda x: model(x, training=False), [images], by_xla)
    state = [[v.value for v in model.trainable_variables], [v.value for v in model.non_trainable_variables]]

    def call(trainable, rest, x):
        return model.stateless_call(trainable, rest, x, training=False)[0]

    return compile_call(call, [*state, images])


def classification_loss(labels, logits):
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)(labels, keras.ops.cast(logits, "float32"))


def train(model: keras.Model, images: np.ndarray, labels: np.ndarray) -> Callable[[], object]:
    """A step of SGD with momentum on a batch."""
    optimizer = keras.optimizers.SGD(1e-3, momentum=0.9)
    if keras.backend.backend() == "jax":
        return train_on_jax(model, optimizer, *map(keras.ops.convert_to_tensor, (images, labels)))
    # keras-hub's own compile adds a metric unless it is told that there is none.
    model.compile(optimizer, classification_loss, metrics=[])
    return lambda: float(model.train_on_batch(images, labels))


def train_on_jax(model, optimizer, images, labels):
    """The same step on JAX, whose weights stay on the device; images and labels are there already."""
    import jax

    optimizer.build(model.trainable_variables)

    def loss_of(trainable, rest, x, y):
        logits, rest = model.stateless_call(trainable, rest, x, training=True)
        return classification_loss(y, logits), rest

    def step(state, x, y):
        trainable, rest, slots = state
        (loss, rest), gradients = jax.value_and_grad(loss_of, has_aux=True)(trainable, rest, x, y)
        trainable, slots = optimizer.stateless_apply(slots, gradients, trainable)
        return loss, (trainable, rest, slots)

    compiled = jax.jit(step, donate_argnums=0)
    variables = model.trainable_variables, model.non_trainable_variables, optimizer.variables
    state = tuple([jax.numpy.copy(v.value) for v in part] for part in variables)

    def run():
        nonlocal state
        loss, state = compiled(state, images, labels)
        return float(loss)

    return run


def build_keras_vit(config: ViTConfig | ResNetConfig, remat: bool = False) -> keras.Model:
    model = build(config)
    model.remat = remat
    return model


def build_keras_hub(config: ViTConfig) -> keras.Model:
    """keras-hub's ViT of the same sizes."""
    from keras_hub.models import ViTBackbone, ViTImageClassifier

    backbone = ViTBackbone(
        image_shape=(*config.image_size, config.num_channels),
        patch_size=config.patch_size,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        hidden_dim=config.hidden_size,
        mlp_dim=config.mlp_dim,
    )
    return ViTImageClassifier(backbone, config.num_classes)


RESNETS = {(3, 4, 6, 3): keras.applications.ResNet50V2, (3, 4, 23, 3): keras.applications.ResNet101V2}


def build_keras_applications(config: ResNetConfig) -> keras.Model:
    """Keras' ResNet V2 of the same depth: batch norm in place of group norm, plain convolutions."""
    make, shape = RESNETS[config.depths], (*config.image_size, 3)
    return make(weights=None, input_shape=shape, classes=config.num_classes, classifier_activation=None)


def is_plain_vit(config):
    return isinstance(config, ViTConfig) and config.backbone is None and config.classifier == "token"


def is_resnet_v2(config):
    return isinstance(config, ResNetConfig) and config.width_factor == 1 and config.depths in RESNETS


# {peer: (whether it has the model of a configuration, what builds it)}
KERAS_PEERS = {
    "keras-hub": (is_plain_vit, build_keras_hub),
    "keras.applications": (is_resnet_v2, build_keras_applications),
}
