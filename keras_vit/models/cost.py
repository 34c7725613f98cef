"""What a configuration costs: parameters and floating-point operations, counted from the numbers alone."""

from keras_vit.models.config import ResNetConfig, ViTConfig


def parameters(config: ViTConfig | ResNetConfig) -> int:
    """Number of weights of the model that `config` describes.

    >>> parameters(keras_vit.models.variant("ViT-B/16").config)
    86567656
    """
    if isinstance(config, ResNetConfig):
        channels = trunk_channels(config)
        trunk = 49 * config.num_channels * 64 * config.width_factor + 2 * channels
        stages = units(config.depths, config.width_factor)
        weights = trunk + sum(count * unit.parameters(norm_first=True) for unit, count in stages)
        return int(weights + channels * config.num_classes + config.num_classes)
    return int(vit_parameters(config))


def layers(config: ViTConfig | ResNetConfig) -> int:
    """Number of encoder blocks, and of bottleneck units of the ResNet or the hybrid's backbone."""
    depths = getattr(config, "depths", ()) or getattr(getattr(config, "backbone", None), "depths", ())
    return getattr(config, "num_layers", 0) + sum(depths)


def gflops(config: ViTConfig | ResNetConfig, image_size: tuple[int, int] | None = None) -> float:
    """Billions of floating-point operations of one image's forward pass; a multiply-add is two, as in the paper.

    Counted are convolutions and matrix products; not normalization, softmax, activations.
    `image_size` is (height, width); None takes the configuration's.

    >>> round(gflops(keras_vit.models.variant("ViT-B/16").config), 1)
    35.1
    """
    size = image_size or config.image_size
    count = resnet_multiply_adds if isinstance(config, ResNetConfig) else vit_multiply_adds
    return 2e-9 * count(config, size)


class Unit:
    """A bottleneck unit: 1x1, 3x3 (with the stride), 1x1 to four times `width`; the first of a stage projects too."""

    def __init__(self, inputs, width, stride, projects):
        self.inputs, self.width, self.stride, self.projects = inputs, width, stride, projects

    def parameters(self, norm_first):
        n = self.width
        kernels = self.inputs * n + 9 * n * n + 4 * n * n + self.projects * 4 * n * self.inputs
        if norm_first:  # BiT: a norm before each convolution, none on the projection
            return kernels + 2 * (self.inputs + n + n)
        return kernels + 2 * (n + n + 4 * n) + self.projects * 8 * n

    def multiply_adds(self, cells, strided):
        n = self.width
        return cells * self.inputs * n + strided * (13 * n * n + self.projects * 4 * n * self.inputs)


def trunk_channels(config):
    """Channels of the last feature map of a ResNet or a backbone."""
    stages = len(config.depths)
    return 64 * config.width_factor * (4 * 2 ** (stages - 1) if stages else 1)


def units(depths, width_factor):
    """(unit, how many of it): of every stage the first, then the equal ones that follow."""
    inputs = 64 * width_factor
    for stage, depth in enumerate(depths):
        width = 64 * width_factor * 2**stage
        yield Unit(inputs, width, stride=2 if stage else 1, projects=True), 1
        inputs = 4 * width
        yield Unit(inputs, width, stride=1, projects=False), depth - 1


def halve(size):
    return tuple(-(-length // 2) for length in size)


def trunk_multiply_adds(config, depths, width_factor, size):
    """Multiply-adds of stem and stages, and the size (height, width) of the last feature map."""
    size = halve(size)
    total = size[0] * size[1] * 49 * config.num_channels * 64 * width_factor
    size = halve(size)  # the pool
    for unit, count in units(depths, width_factor):
        cells, size = size[0] * size[1], halve(size) if unit.stride == 2 else size
        total += count * unit.multiply_adds(cells, size[0] * size[1])
    return total, size


def resnet_multiply_adds(config, size):
    total, _ = trunk_multiply_adds(config, config.depths, config.width_factor, size)
    return total + trunk_channels(config) * config.num_classes


def feature_channels(config):
    """Channels that the patches of a ViT or a hybrid are cut from."""
    return trunk_channels(config.backbone) if config.backbone else config.num_channels


def patch_weights(config):
    return config.patch_size[0] * config.patch_size[1] * feature_channels(config) * config.hidden_size


def head_weights(config):
    """Kernels and biases of pre-logits and head."""
    features = config.representation_size or config.hidden_size
    before = (config.hidden_size + 1) * config.representation_size if config.representation_size else 0
    return before + (features + 1) * config.num_classes


def block_parameters(config):
    """Weights of one encoder block: four projections, the MLP's two layers, two norms."""
    d, m = config.hidden_size, config.mlp_dim
    return 4 * d * (d + 1) + d * (m + 1) + m * d + m + 4 * d


def block_multiply_adds(config, tokens):
    """Multiply-adds of one encoder block: projections and MLP, then q k^T and A v."""
    d, m = config.hidden_size, config.mlp_dim
    return tokens * (4 * d * d + 2 * d * m) + 2 * tokens * tokens * d


def vit_parameters(config):
    d = config.hidden_size
    tokens = config.grid[0] * config.grid[1] + (config.classifier == "token")
    total = patch_weights(config) + d + tokens * d + (config.classifier == "token") * d
    total += config.num_layers * block_parameters(config) + 2 * d + head_weights(config)
    if config.backbone is None:
        return total
    depths, width = config.backbone.depths, config.backbone.width_factor
    stem = 49 * config.num_channels * 64 * width + 2 * 64 * width
    return total + stem + sum(count * unit.parameters(norm_first=False) for unit, count in units(depths, width))


def vit_multiply_adds(config, size):
    step = config.pixels_per_token
    patches = (size[0] // step[0]) * (size[1] // step[1])
    tokens = patches + (config.classifier == "token")
    blocks = config.num_layers * block_multiply_adds(config, tokens)
    total = patches * patch_weights(config) + blocks + head_weights(config)
    if config.backbone is not None:
        total += trunk_multiply_adds(config, config.backbone.depths, config.backbone.width_factor, size)[0]
    return total
