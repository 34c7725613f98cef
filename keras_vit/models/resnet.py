"""ResNet (BiT) (section 4.1; arXiv 1912.11370), read from the top: stem, stages, head; and the hybrid's ResNet."""

import keras

from keras_vit import _registration
from keras_vit.layers import GroupNormalization, PostActivationBottleneck, PreActivationBottleneck, StandardizedConv2D
from keras_vit.models.classifier import Classifier, classify_map
from keras_vit.models.config import ResNetConfig


def root(x, config, **options):
    """Convolution 7x7 / 2 to the channels of the first stage."""
    filters, epsilon = int(64 * config.width_factor), config.kernel_variance_epsilon
    return StandardizedConv2D(filters, kernel_size=7, strides=2, variance_epsilon=epsilon, **options)(x)


def stem(x, config, dtype):
    """The root, then max-pool 3x3 / 2 over zero padding, without norm or activation."""
    x = root(x, config, dtype=dtype, name="root_conv")
    x = keras.layers.ZeroPadding2D(1, "channels_last", dtype=dtype, name="root_pad")(x)
    return keras.layers.MaxPooling2D(3, 2, data_format="channels_last", dtype=dtype, name="root_pool")(x)


def stages(x, config, dtype, unit_class, name):
    """One stage for each depth; every stage after the first halves height and width and doubles the channels.

    `name` is a pattern for the layers' names, filled with the numbers of stage and unit.
    """
    filters = int(64 * config.width_factor)
    for stage, depth in enumerate(config.depths, start=1):
        for unit in range(1, depth + 1):
            x = unit_class(
                filters * 2 ** (stage - 1),
                strides=2 if stage > 1 and unit == 1 else 1,
                **unit_class.arguments_in(config),
                dtype=dtype,
                name=name.format(stage, unit),
            )(x)
    return x


def head(x, images, config, dtype):
    """Norm, ReLU, mean over the image, then the logits."""
    x = GroupNormalization(epsilon=config.group_norm_epsilon, dtype=dtype, name="group_norm")(x)
    x = keras.layers.ReLU(dtype=dtype, name="relu")(x)
    return classify_map(x, images, config, dtype)


@keras.saving.register_keras_serializable(package="keras_vit")
class ResNet(Classifier):
    """BiT's ResNet-v2 with group norm: images (n, h, w, channels), float in [-1, 1], to logits (n, num_classes).

    A functional `keras.Model`: every unit is the layer "blockB_unitUU" (both from 1).

    Args:
        FIELDS
        preprocessing, labels, dtype, name, trainable: see `Classifier`.

    Raises:
        ConfigError: if an argument is invalid, or arguments contradict each other.

    >>> tuple(ResNet(image_size=None, depths=(1, 1), num_classes=10)(np.zeros((2, 65, 97, 3))).shape)
    (2, 10)
    """

    config: ResNetConfig
    config_class = ResNetConfig

    @staticmethod
    def make_graph(images, config, dtype):
        x = stages(stem(images, config, dtype), config, dtype, PreActivationBottleneck, "block{}_unit{:02d}")
        return head(x, images, config, dtype)


def hybrid_backbone(x, config, dtype, unit_class=PostActivationBottleneck):
    """The hybrid's ResNet, a stem of stride 4 and the stages: (n, h, w, c) to (n, h / stride, w / stride, c')."""
    x = root(x, config, padding="same", std_epsilon=config.kernel_std_epsilon, dtype=dtype, name="conv_root")
    x = GroupNormalization(epsilon=config.group_norm_epsilon, dtype=dtype, name="norm_root")(x)
    x = keras.layers.ReLU(dtype=dtype, name="relu_root")(x)
    x = keras.layers.MaxPooling2D(3, 2, "same", "channels_last", dtype=dtype, name="pool_root")(x)
    return stages(x, config, dtype, unit_class, "block{}_unit{}")


_registration.register()
