"""Parameters, floating-point operations and activations of a model, counted from its configuration alone."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from keras_vit.models.config import ResNetConfig, ViTConfig


@dataclass(frozen=True)
class Convolution:
    """A convolution of images of one size.

    Args:
        kernel: height, and width, of the kernel.
        inputs, outputs: channels.
        size: (height, width) of the input.
        stride: along both axes.
        normalized: channels of the group norm that belongs to it; 0 for no norm.
        even: whether both sides are padded alike; otherwise as TensorFlow's "same".
    """

    kernel: int
    inputs: int
    outputs: int
    size: tuple[int, int]
    stride: int = 1
    normalized: int = 0
    even: bool = True

    @property
    def weights(self):
        return self.kernel**2 * self.inputs * self.outputs

    @property
    def parameters(self):
        return self.weights + 2 * self.normalized

    @property
    def output_size(self):
        return tuple(-(-length // self.stride) for length in self.size)

    @property
    def values(self):
        """The number of values in one image's output."""
        return self.output_size[0] * self.output_size[1] * self.outputs

    def multiply_adds(self, padding):
        """Multiply-adds for one image; `padding`: whether to count those on padding."""
        if padding:
            return self.weights * self.output_size[0] * self.output_size[1]
        return self.places_inside(0) * self.places_inside(1) * self.inputs * self.outputs

    def places_inside(self, axis):
        """The number of pairs (output, place of the kernel), along an axis, that lie on the image."""
        length, steps = self.size[axis], self.output_size[axis]
        before = self.kernel // 2
        if not self.even:
            before = max((steps - 1) * self.stride + self.kernel - length, 0) // 2
        starts = range(-before, steps * self.stride - before, self.stride)
        return sum(min(start + self.kernel, length) - max(start, 0) for start in starts)


def unit(inputs, width, stride, size, projects, norm_first, attention_cost=None):
    """A bottleneck unit: 1x1, 3x3 with the stride, 1x1 to four times `width`.

    `projects`: whether the shortcut has a convolution. `norm_first`: a norm before each of the three, none at it (BiT);
    otherwise one after each of the four. `attention_cost` gives the attention in place of the 3x3 convolution.
    """
    strided = tuple(-(-length // stride) for length in size)
    rows = [(1, inputs, width, size, 1), (3, width, width, size, stride), (1, width, 4 * width, strided, 1)]
    convolutions = [Convolution(*row, normalized=row[1] if norm_first else row[2]) for row in rows]
    if attention_cost:
        convolutions[1:2] = attention_cost(width, size)
    if projects:
        convolutions.append(Convolution(1, inputs, 4 * width, size, stride, 0 if norm_first else 4 * width))
    return convolutions


def trunk(config, size) -> Iterator[tuple[list, int]]:
    """(convolutions and attention, number of times) of the stem, and of each stage's first unit and its other units.

    Only a ResNet and a hybrid have a trunk. The hybrid's first convolution pads as TensorFlow does.
    """
    backbone = config if isinstance(config, ResNetConfig) else config.backbone
    if backbone is None:
        return
    bit = getattr(backbone, "norms_first", False)
    attention_cost = getattr(backbone, "attention_cost", None)
    width = int(64 * backbone.width_factor)
    root = Convolution(7, config.num_channels, width, size, 2, normalized=0 if bit else width, even=bit)
    yield [root], 1
    inputs, size = width, tuple(-(-length // 2) for length in root.output_size)  # after the pool
    for stage, depth in enumerate(backbone.depths):
        width = 64 * backbone.width_factor * 2**stage
        first = unit(inputs, width, 2 if stage else 1, size, True, bit, attention_cost)
        yield first, 1
        inputs, size = 4 * width, first[-1].output_size
        yield unit(inputs, width, 1, size, False, bit, attention_cost), depth - 1


def add_up(config, size, count):
    """The sum of `count(convolution)` over the trunk."""
    return sum(times * sum(map(count, convolutions)) for convolutions, times in trunk(config, size))


def trunk_channels(config):
    """Channels of the last feature map of a ResNet or a backbone."""
    stages = len(config.depths)
    return 64 * config.width_factor * (4 * 2 ** (stages - 1) if stages else 1)


def patch_weights(config):
    channels = trunk_channels(config.backbone) if config.backbone else config.num_channels
    return config.patch_size[0] * config.patch_size[1] * channels * config.hidden_size


def positioned_prefix(config):
    """The number of tokens before the patches that have a 1-D position embedding; registers only in every layer."""
    if config.position_embedding_at != "stem":
        return config.prefix_tokens
    return int(config.has_class_token and config.class_token_position)


def pooling_parameters(config):
    """Parameters of attention pooling: a probe, four dense layers, a norm and an MLP."""
    d = config.hidden_size
    return d + 4 * (d + 1) * d + 2 * d + config.mlp_parameters if config.classifier == "map" else 0


def pooling_products(config, patches):
    """Multiply-adds of attention pooling: keys and values for all patches, everything else for one token."""
    d = config.hidden_size
    mlp = (2 + config.gated_mlp) * d * config.mlp_dim
    return 2 * (patches + 1) * d * d + 2 * patches * d + mlp if config.classifier == "map" else 0


def pooling_values(config, patches):
    """Values that the products of attention pooling give: keys and values of all patches, else those of one token."""
    d, mlp = config.hidden_size, (1 + config.gated_mlp) * config.mlp_dim
    return 2 * patches * d + config.num_heads * patches + 4 * d + mlp if config.classifier == "map" else 0


def position_weights(config):
    """Weights of all position embeddings (Eq. 1, Appendix D.4), relative ones included."""
    d, (rows, columns) = config.hidden_size, config.grid
    each = {
        "none": 0,
        "1d": (rows * columns + positioned_prefix(config)) * d,
        "2d": (rows + columns) * d // 2,
        "relative": (2 * rows * columns - 1) * d // config.num_heads,
        "sincos2d": 0,
        "rope": 0,
    }[config.position_embedding]
    in_every_layer = config.position_embedding == "relative" or config.position_embedding_at == "every-layer"
    return config.num_layers * each if in_every_layer else each


def head_kernels(config):
    """Weights of the kernels of pre-logits and head."""
    width = config.representation_size or 0
    return config.features * width + (width or config.features) * config.num_classes


def count_parameters(config: ViTConfig | ResNetConfig) -> int:
    """The number of weights of the model that `config` describes.

    >>> count_parameters(keras_vit.models.variant("ViT-B/16").config)
    86567656
    """
    if isinstance(config, ResNetConfig):
        channels = trunk_channels(config)
        # Image size affects parameters only by the lengths of axial attention.
        convolutions = add_up(config, config.image_size or (1, 1), lambda convolution: convolution.parameters)
        return int(convolutions + 2 * channels * config.norms_first + (channels + 1) * config.num_classes)
    d = config.hidden_size
    total = patch_weights(config) + config.patch_bias * d + position_weights(config) + config.prefix_tokens * d
    total += config.num_layers * config.block_parameters + 2 * d * (1 + config.pre_norm) + pooling_parameters(config)
    total += head_kernels(config) + (config.representation_size or 0) + config.head_bias * config.num_classes
    return int(total + add_up(config, (1, 1), lambda convolution: convolution.parameters))


def count_layers(config: ViTConfig | ResNetConfig) -> int:
    """The number of encoder blocks, and of bottleneck units of the ResNet or the hybrid's backbone."""
    depths = getattr(config, "depths", ()) or getattr(getattr(config, "backbone", None), "depths", ())
    return getattr(config, "num_layers", 0) + sum(depths)


def count_tokens(config, size):
    """The numbers of patches and of tokens of an image of the given size."""
    rows, columns = config.grid_of(size)
    return rows * columns, rows * columns + config.prefix_tokens


def places(config, size):
    """The number of vectors that the head reads of an image: one, or that of all patches or cells of a map."""
    if config.classifier != "patches":
        return 1
    if not isinstance(config, ResNetConfig):
        return count_tokens(config, size)[0]
    return math.prod(-(-length // config.stride) for length in size)


def relative_logits(config, patches):
    """The number of relative logits of each head of a block: one for each query and offset."""
    return patches * (2 * patches - 1) if config.position_embedding == "relative" else 0


def count_flops(
    config: ViTConfig | ResNetConfig, image_size: tuple[int, int] | None = None, padding: bool = True
) -> int:
    """Floating-point operations of one image's forward pass; a multiply-add is two, as in the paper.

    Convolutions and matrix products are counted; biases, normalization, softmax and activations are not.

    Args:
        image_size: (height, width); None for the configuration's, or for that of its stored position embeddings.
        padding: whether to count a kernel's products with padding. Table 6 seems to leave them out.
    """
    size: Any = image_size or config.own_size  # None only for a ResNet of any image size
    convolutions = add_up(config, size, lambda convolution: convolution.multiply_adds(padding))
    if isinstance(config, ResNetConfig):
        return int(2 * (convolutions + places(config, size) * trunk_channels(config) * config.num_classes))
    d, patches, tokens = config.hidden_size, *count_tokens(config, size)
    mlp = (2 + config.gated_mlp) * d * config.mlp_dim
    block = tokens * (4 * d * d + mlp) + relative_logits(config, patches) * d
    total = patches * patch_weights(config) + config.num_layers * block + places(config, size) * head_kernels(config)
    total += 2 * config.count_pairs(size) * d + pooling_products(config, patches)
    return int(2 * (total + convolutions))


def count_activations(config: ViTConfig | ResNetConfig, image_size: tuple[int, int] | None = None) -> int:
    """The number of values that all convolutions and matrix products give in one image's forward pass."""
    size: Any = image_size or config.own_size  # None only for a ResNet of any image size
    convolutions = add_up(config, size, lambda convolution: convolution.values)
    if isinstance(config, ResNetConfig):
        return int(convolutions + places(config, size) * config.num_classes)
    d, patches, tokens = config.hidden_size, *count_tokens(config, size)
    mlp = (1 + config.gated_mlp) * config.mlp_dim + d
    block = tokens * (5 * d + mlp)  # q, k, v, A v, out; MLP
    block += config.num_heads * relative_logits(config, patches)
    total = patches * d + config.num_layers * block + config.num_heads * config.count_pairs(size)  # A
    total += places(config, size) * ((config.representation_size or 0) + config.num_classes)
    return int(total + pooling_values(config, patches) + convolutions)
