"""The Vision Transformer and the hybrid (section 3.1), read from the top: stem, tokens, encoder, pooling, head."""

from typing import Any

import keras

from keras_vit import _registration
from keras_vit.layers import (
    AttentionPooling,
    AveragePatches,
    ClassToken,
    Dropout,
    EncoderBlock,
    LayerNormalization,
    PatchEmbedding,
    PatchTokens,
    PositionEmbedding,
    PositionEmbedding2D,
    Registers,
    SineCosineEmbedding2D,
    TakeClassToken,
)
from keras_vit.layers.base import wide_type
from keras_vit.layers.positions import PatchPlaces
from keras_vit.models.classifier import Classifier, classify
from keras_vit.models.config import ViTConfig
from keras_vit.models.cost import positioned_prefix
from keras_vit.models.resnet import hybrid_backbone


def position_layer(config, dtype, name):
    """The layer that adds position embeddings: E_pos of Eq. 1, or another kind."""
    kinds = {"1d": PositionEmbedding, "2d": PositionEmbedding2D, "sincos2d": SineCosineEmbedding2D}
    prefix, interpolation = positioned_prefix(config), config.position_interpolation
    return kinds[config.position_embedding](config.grid, prefix, interpolation, dtype=dtype, name=name)


def patch_places(images, config, dtype):
    """{"places": ...}, as an argument of the layers that need the patches' places; {} for images of one size."""
    if not config.has_free_size or config.position_embedding == "none":
        return {}
    layer = PatchPlaces(config.pixels_per_token, config.drop_remainder, dtype=dtype, name="patch_places")
    return {"places": layer(images)}


def tokens(x, config, dtype, places):
    """Eq. 1: [x_class; x_p E] + E_pos, then dropout: (n, h, w, c) to (n, l, hidden_size).

    Registers, and a class token without a position (DeiT-III), are added after E_pos. CLIP has a norm at the end.
    """
    x = PatchEmbedding(**PatchEmbedding.arguments_in(config), dtype=dtype, name="embedding")(x)
    if config.has_class_token and config.class_token_position:
        x = ClassToken(dtype=dtype, name="cls")(x)
    if config.position_layers and config.position_embedding_at == "stem":
        x = position_layer(config, dtype, "posembed_input")(x, **places)
    if config.has_class_token and not config.class_token_position:
        x = ClassToken(dtype=dtype, name="cls")(x)
    if config.num_registers:
        x = Registers(config.num_registers, int(config.has_class_token), dtype=dtype, name="registers")(x)
    x = Dropout(config.dropout_rate, dtype=dtype, name="dropout")(x)
    if config.pre_norm:
        x = LayerNormalization(epsilon=config.layer_norm_epsilon, dtype=dtype, name="pre_norm")(x)
    return x


def pool(x, config, dtype):
    """The image representation y (Eq. 4): (n, l, hidden_size) to (n, features), or (n, patches, features)."""
    if config.classifier == "token":
        return TakeClassToken(dtype=dtype, name="pool")(x)
    if config.classifier == "map":
        return AttentionPooling(**AttentionPooling.arguments_in(config), dtype=dtype, name="pool")(x)
    if config.classifier == "patches":
        return PatchTokens(config.prefix_tokens, dtype=dtype, name="pool")(x)
    return AveragePatches(config.prefix_tokens, config.classifier == "token+gap", dtype=dtype, name="pool")(x)


def block_positions(config):
    """For each block the name of the layer that adds position embeddings to its input; () if there are none."""
    return () if config.position_embedding_at == "stem" else config.position_layers


def encoder(x, config, dtype, make_block, places):
    """Eq. 2 to 4: num_layers blocks, a last layer norm and the pooling, (n, l, hidden_size) to (n, features).

    The last block computes the class token alone if nothing else is read. The norm may follow the pooling.
    """
    names = block_positions(config)
    positions = {name: position_layer(config, dtype, name) for name in dict.fromkeys(names)}
    turned = places if config.position_embedding == "rope" else {}
    for i in range(config.num_layers):
        before = positions[names[i]](x, **places) if names else x
        block = make_block(i, config, dtype)
        x = block(before, **turned)
    norm = LayerNormalization(epsilon=config.layer_norm_epsilon, dtype=dtype, name="encoder_norm")
    y = norm(x)  # the first call, whose tensors are the layers' `output`, is for all tokens
    if config.norm_after_pool:
        return norm(pool(x, config, dtype))
    return pool(norm(block(before, class_token=True, **turned)) if config.reads_class_token_alone else y, config, dtype)


def head(x, images, config, dtype):
    """The classification head: a tanh layer for pre-training, or a projection to vectors of length 1; then logits."""
    if config.representation_size:
        activation = None if config.unit_vectors else "tanh"
        x = keras.layers.Dense(config.representation_size, activation=activation, dtype=dtype, name="pre_logits")(x)
    if config.unit_vectors:
        x = keras.layers.UnitNormalization(dtype=wide_type(dtype.compute_dtype), name="unit_vectors")(x)
    return classify(x, images, config, dtype, use_bias=config.head_bias)


@keras.saving.register_keras_serializable(package="keras_vit")
class VisionTransformer(Classifier):
    """ViT, or the hybrid with `backbone`: images (n, h, w, channels), float in [-1, 1], to logits (n, num_classes).

    A functional `keras.Model`: every encoder block is the layer "encoderblock_i", its output one line away, as in
    `keras.Model(model.input, model.get_layer("encoderblock_3").output)`. Such a model takes no uint8 images: this one
    normalizes those when it is called.

    Args:
        FIELDS
        preprocessing, labels, dtype, name, trainable: see `Classifier`.

    Raises:
        ConfigError: if an argument is invalid, or arguments contradict each other.

    >>> model = VisionTransformer(image_size=32, patch_size=8, hidden_size=64, num_layers=2, num_heads=4, mlp_dim=128)
    >>> tuple(model(np.zeros((2, 32, 32, 3))).shape)
    (2, 1000)
    """

    config: ViTConfig
    config_class = ViTConfig
    block_class = EncoderBlock

    @classmethod
    def make_graph(cls, images, config, dtype):
        places = patch_places(images, config, dtype)
        x = hybrid_backbone(images, config.backbone, dtype) if config.backbone else images
        x = tokens(x, config, dtype, places)
        x = encoder(x, config, dtype, cls.make_block, places)
        return head(x, images, config, dtype)

    @classmethod
    def make_block(cls, i, config, dtype, **arguments):
        """Block i, from 0; its arguments are the configuration's fields of the same names."""
        arguments |= cls.block_class.arguments_in(config) | {"stochastic_depth_rate": config.block_rate(i)}
        return cls.block_class(**arguments, dtype=dtype, name=f"encoderblock_{i}")

    def attention(self, images: Any) -> Any:
        """The attention weights A (Eq. 6) of every block: images to (n, num_layers, num_heads, l, l)."""
        return self.with_attention(images)[1]

    def with_attention(self, images: Any) -> tuple[Any, Any]:
        """The model's outputs for images, and `attention`, from a single pass."""
        blocks = [self.get_layer(f"encoderblock_{i}") for i in range(self.config.num_layers)]
        positions = [self.get_layer(name) for name in block_positions(self.config)]
        names = {layer.name for layer in self.layers}
        placed = {"places": self.get_layer("patch_places").output} if "patch_places" in names else {}
        first = keras.tree.flatten(blocks[0].input)[0]
        stem, weights = keras.Model(self.inputs[0], {"x": first, **placed}, name="stem"), []
        (images,) = self._standardize_inputs(images)
        places = stem(images, training=False)
        x = places.pop("x")
        turned = places if self.config.position_embedding == "rope" else {}
        for i, block in enumerate(blocks):
            x = positions[i](x, **places) if i and positions else x  # the first block's input already has them
            x, a = block(x, training=False, return_weights=True, **turned)
            weights.append(a[:, None])
        for layer in self.layers[self.layers.index(blocks[-1]) + 1 :]:  # norm, pool and head, in a row
            x = layer(x, images=images) if layer.name == "pixels" else layer(x)
        return x, keras.ops.concatenate(weights, axis=1)


_registration.register()
