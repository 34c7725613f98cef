"""The cost of models: parameters, operations, activations, and the compute of pre-training (Tables 2 and 6)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from keras_vit.errors import ConfigError
from keras_vit.models import cost as counted
from keras_vit.models.config import ResNetConfig, ViTConfig, pair

if TYPE_CHECKING:
    from keras_vit.models import AxialResNet, ResNet, VisionTransformer

JFT_IMAGES = 303_000_000
FORWARD_AND_BACKWARD = 3  # a backward pass costs twice the forward pass
FLOAT32 = 4  # bytes


@dataclass(frozen=True)
class Cost:
    """The cost of one image.

    Args:
        parameters: number of the model's weights.
        flops: operations of the forward pass; a multiply-add is two, as in the paper.
        activation_bytes: bytes of all outputs of convolutions and matrix products in the forward pass, in float32; a
            training step keeps about this much for each image.
    """

    parameters: int
    flops: int
    activation_bytes: int


def require_config(function, model_or_config):
    """The configuration of a model of this package, or the given one."""
    config = getattr(model_or_config, "config", model_or_config)
    if not isinstance(config, (ViTConfig, ResNetConfig)):
        raise ConfigError(
            f"{function} takes a model of keras_vit or its configuration. Received: {type(config).__name__}."
        )
    return config


def cost(
    model_or_config: "VisionTransformer | ResNet | AxialResNet | ViTConfig | ResNetConfig",
    image_size: int | tuple[int, int] | None = None,
) -> Cost:
    """Counts the cost of a model from its configuration alone.

    Args:
        image_size: in pixels, an int or (height, width); None for the model's own. It does not change the number of
            parameters: position embeddings count as the model has them.

    Raises:
        ConfigError: for a model from elsewhere, and for a ResNet of any image size without `image_size`.

    >>> cost(keras_vit.models.variant("ViT-B/16").config).flops / 1e9
    35.1...
    """
    config = require_config("cost", model_or_config)
    size = config.own_size if image_size is None else pair("image_size", image_size)
    if size is None:
        raise ConfigError("This ResNet takes images of any size: cost needs image_size, such as 224.")
    return Cost(
        counted.count_parameters(config),
        counted.count_flops(config, size),
        FLOAT32 * counted.count_activations(config, size),
    )


def pretraining_exaflops(
    config: "VisionTransformer | ResNet | AxialResNet | ViTConfig | ResNetConfig",
    epochs: float,
    images: int = JFT_IMAGES,
) -> float:
    """The compute of pre-training in 10^18 floating-point operations: three forward passes for each image and epoch.

    Every row of Table 6 agrees within 1 %, except two: ViT-B/32 is printed as 55 (56.1 here), and 7 epochs of
    R50+ViT-L/16 as 859, though its 14 epochs are 1668.

    Args:
        config: of the model, or the model itself.
        images: number of images in an epoch, of 224 pixels; JFT-300M has 303 million.

    Raises:
        ConfigError: for a model from elsewhere.

    >>> round(pretraining_exaflops(keras_vit.models.variant("ViT-L/16").config, epochs=14))
    1567
    """
    config = require_config("pretraining_exaflops", config)
    # Table 6 leaves out a kernel's products with padding.
    return FORWARD_AND_BACKWARD * counted.count_flops(config, (224, 224), padding=False) * images * epochs / 1e18


def core_days(exaflops: float, teraflops_per_core: float) -> float:
    """TPUv3-core-days of a pre-training, for an assumed speed of a core.

    No single speed fits Table 2: it implies 26.7 TFLOP/s for ViT-L/16 and 19.7 for ViT-H/14 on JFT-300M; a core's
    maximum is 61.

    >>> round(core_days(1567, 26.7))
    679
    """
    return exaflops * 1e18 / (teraflops_per_core * 1e12) / 86_400
