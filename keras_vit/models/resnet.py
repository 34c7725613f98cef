"""ResNet (BiT) (section 4.1; arXiv 1912.11370), read from the top: stem, stages, head."""

from collections.abc import Mapping, Sequence

import keras

from keras_vit.layers import GroupNormalization, PreActivationBottleneck, StandardizedConv2D
from keras_vit.models.classifier import Classifier, image_input, linear_head
from keras_vit.models.config import ProbabilityKind, ResNetConfig
from keras_vit.models.preprocessing import Preprocessing, UnknownPreprocessing


@keras.saving.register_keras_serializable(package="keras_vit")
class ResNet(Classifier):
    """BiT's ResNet-v2 with group norm: images (n, h, w, channels), float in [-1, 1], to logits (n, num_classes).

    A functional `keras.Model`: every unit is the layer "blockB_unitUU" (both from 1).

    Args:
        image_size: int or (height, width) in pixels; None for any size.
        depths: units of each stage: (3, 4, 6, 3) is R50.
        width_factor: multiplies every width; 1, 2, 3, 4 in the paper.
        num_classes: width of the logits; 0 for features (n, 2048 * width_factor).
        num_channels: of the images.
        group_norm_epsilon: 1e-5 in the authors' code.
        kernel_variance_epsilon: of the standardized kernels, 1e-10 in the authors' code.
        probabilities: what makes probabilities of the logits, which the model gives: "softmax", where an image has one
            class; "sigmoid", where it has several or none.
        preprocessing, labels, dtype, name, trainable: see `Classifier`.

    Raises:
        ConfigError: if an argument is invalid, or arguments contradict each other.

    >>> tuple(ResNet(image_size=None, depths=(1, 1), num_classes=10)(np.zeros((2, 65, 97, 3))).shape)
    (2, 10)
    """

    config: ResNetConfig

    def __init__(
        self,
        image_size: int | tuple[int, int] | None = (224, 224),
        depths: Sequence[int] = (3, 4, 6, 3),
        width_factor: float = 1,
        num_classes: int = 1000,
        num_channels: int = 3,
        group_norm_epsilon: float = 1e-5,
        kernel_variance_epsilon: float = 1e-10,
        probabilities: ProbabilityKind = "softmax",
        preprocessing: Preprocessing | UnknownPreprocessing | dict | None = None,
        labels: Sequence[str] | None = None,
        dtype: str | keras.DTypePolicy | None = None,
        name: str | None = None,
        trainable: bool | Mapping[str, bool] = True,
    ):
        config = ResNetConfig(
            image_size=image_size,
            depths=depths,
            width_factor=width_factor,
            num_classes=num_classes,
            num_channels=num_channels,
            group_norm_epsilon=group_norm_epsilon,
            kernel_variance_epsilon=kernel_variance_epsilon,
            probabilities=probabilities,
        )
        dtype = keras.dtype_policies.get(dtype)
        images = image_input(*(config.image_size or (None, None)), config.num_channels, dtype)
        x = stem(images, config, dtype)
        x = stages(x, config, dtype)
        x = head(x, config, dtype)
        super().__init__(
            images,
            x,
            config,
            preprocessing=preprocessing,
            labels=labels,
            dtype=dtype,
            name=name,
            trainable=trainable,
        )


def stem(x, config, dtype):
    """Convolution 7x7 / 2, then max-pool 3x3 / 2 over zero padding, neither normed nor activated."""
    x = StandardizedConv2D(
        int(64 * config.width_factor),
        kernel_size=7,
        strides=2,
        variance_epsilon=config.kernel_variance_epsilon,
        dtype=dtype,
        name="root_conv",
    )(x)
    x = keras.layers.ZeroPadding2D(1, dtype=dtype, name="root_pad")(x)
    return keras.layers.MaxPooling2D(3, strides=2, dtype=dtype, name="root_pool")(x)


def stages(x, config, dtype):
    """A stage per depth; every stage after the first halves height and width and doubles the channels."""
    filters = int(64 * config.width_factor)
    for block, depth in enumerate(config.depths, start=1):
        for unit in range(1, depth + 1):
            x = PreActivationBottleneck(
                filters * 2 ** (block - 1),
                strides=2 if block > 1 and unit == 1 else 1,
                group_norm_epsilon=config.group_norm_epsilon,
                kernel_variance_epsilon=config.kernel_variance_epsilon,
                dtype=dtype,
                name=f"block{block}_unit{unit:02d}",
            )(x)
    return x


def head(x, config, dtype):
    """Norm, ReLU, mean over the image, then the logits."""
    x = GroupNormalization(epsilon=config.group_norm_epsilon, dtype=dtype, name="group_norm")(x)
    x = keras.layers.ReLU(dtype=dtype, name="relu")(x)
    x = keras.layers.GlobalAveragePooling2D(dtype=dtype, name="pool")(x)
    if config.num_classes:
        x = linear_head(x, config.num_classes, dtype)
    return x
