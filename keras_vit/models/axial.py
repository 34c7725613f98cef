"""The axial models (Appendix D.6, Figure 13): Axial-ViT and AxialResNet."""

from collections.abc import Mapping, Sequence

import keras

from keras_vit.layers import AxialBottleneck, AxialEncoderBlock
from keras_vit.models.classifier import Classifier, image_input, linear_head
from keras_vit.models.config import AxialResNetConfig, AxialViTConfig, ProbabilityKind
from keras_vit.models.preprocessing import Preprocessing, UnknownPreprocessing
from keras_vit.models.vit import VisionTransformer, hybrid_backbone


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialVisionTransformer(VisionTransformer):
    """Axial-ViT: two Axial Transformer blocks, of rows and of columns, in place of each block of ViT.

    Images (n, h, w, channels), float in [-1, 1], to logits (n, num_classes). The layers "encoderblock_0", 2, 4, ...
    attend along rows, "encoderblock_1", 3, 5, ... along columns: after a row block a patch has seen its row, after the
    column block that follows it everything. `attention` gives weights that are zero off the line.

    Args: those of `VisionTransformer`, but for
        num_layers: axial blocks, an even number: 24 for Axial-ViT-B.
        classifier: "gap" reads the mean of the patch tokens, as the authors' code in Scenic does, whose axial encoder
            has the patches in two dimensions and no class token; so do the named variants. With "token", ours, the
            class token attends to all tokens and no patch to it, so that patches still see their lines alone.

    Raises:
        ConfigError: if an argument is invalid, or arguments contradict each other.

    >>> model = AxialVisionTransformer(32, patch_size=8, hidden_size=64, num_layers=2, num_heads=4, mlp_dim=128)
    >>> tuple(model(np.zeros((2, 32, 32, 3))).shape)
    (2, 1000)
    """

    config: AxialViTConfig
    config_class = AxialViTConfig

    @staticmethod
    def make_block(i, config, dtype):
        axis = "column" if i % 2 else "row"
        return AxialEncoderBlock(axis, config.grid, **config.block_arguments(i), dtype=dtype, name=f"encoderblock_{i}")


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialResNet(Classifier):
    """A ResNet with row and column attention, with relative positions, in place of its 3x3 convolutions.

    Images (n, h, w, channels), float in [-1, 1], to logits (n, num_classes). As the authors' code in Scenic has it: the
    hybrids' ResNet, with group norm and standardized convolutions, and the mean over the last feature map. Every unit
    is the layer "blockB_unitU" (both from 1).

    Args:
        image_size: int or (height, width) in pixels, multiples of the stride (32 for four stages): attention spans
            whole rows and columns, so its relative positions are of one size, to which `zoo.load` resizes them.
        depths: units of each stage: (3, 4, 6, 3) is AxialResNet50.
        width_factor: multiplies every width.
        num_classes: width of the logits; 0 for features (n, 2048 * width_factor).
        num_channels: of the images.
        group_norm_epsilon: 1e-4 in the authors' code.
        kernel_variance_epsilon, kernel_std_epsilon: of the standardized kernels, see `StandardizedConv2D`.
        num_heads: attention heads of every unit, 8 in the authors' code.
        probabilities: what makes probabilities of the logits, which the model gives: "softmax", where an image has one
            class; "sigmoid", where it has several or none.
        preprocessing, labels, dtype, name, trainable: see `Classifier`.

    Raises:
        ConfigError: if an argument is invalid, or arguments contradict each other.

    >>> tuple(AxialResNet(image_size=(32, 64), depths=(1, 1), num_classes=10)(np.zeros((2, 32, 64, 3))).shape)
    (2, 10)
    """

    config: AxialResNetConfig

    def __init__(
        self,
        image_size: int | tuple[int, int] = (224, 224),
        depths: Sequence[int] = (3, 4, 6, 3),
        width_factor: float = 1,
        num_classes: int = 1000,
        num_channels: int = 3,
        group_norm_epsilon: float = 1e-4,
        kernel_variance_epsilon: float = 0.0,
        kernel_std_epsilon: float = 1e-5,
        num_heads: int = 8,
        probabilities: ProbabilityKind = "softmax",
        preprocessing: Preprocessing | UnknownPreprocessing | dict | None = None,
        labels: Sequence[str] | None = None,
        dtype: str | keras.DTypePolicy | None = None,
        name: str | None = None,
        trainable: bool | Mapping[str, bool] = True,
    ):
        config = AxialResNetConfig(
            image_size=image_size,
            depths=depths,
            width_factor=width_factor,
            num_classes=num_classes,
            num_channels=num_channels,
            group_norm_epsilon=group_norm_epsilon,
            kernel_variance_epsilon=kernel_variance_epsilon,
            kernel_std_epsilon=kernel_std_epsilon,
            num_heads=num_heads,
            probabilities=probabilities,
        )
        dtype = keras.dtype_policies.get(dtype)
        images = image_input(*config.image_size, config.num_channels, dtype)
        x = hybrid_backbone(images, config, dtype, AxialBottleneck, num_heads=config.num_heads)
        x = keras.layers.GlobalAveragePooling2D(dtype=dtype, name="pool")(x)
        if config.num_classes:
            x = linear_head(x, config.num_classes, dtype)
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
