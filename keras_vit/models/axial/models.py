"""The models themselves: Axial-ViT and AxialResNet."""

import keras

from keras_vit.models.axial.attention import AxialEncoderBlock
from keras_vit.models.axial.bottleneck import AxialBottleneck
from keras_vit.models.axial.config import AxialResNetConfig, AxialViTConfig
from keras_vit.models.classifier import Classifier, classify_map
from keras_vit.models.vit import VisionTransformer, hybrid_backbone


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialVisionTransformer(VisionTransformer):
    """Axial-ViT: two Axial Transformer blocks, of rows and of columns, in place of each block of ViT.

    Images (n, h, w, channels), float in [-1, 1], to logits (n, num_classes). The layers "encoderblock_0", 2, 4, ...
    attend along rows, "encoderblock_1", 3, 5, ... along columns: after a row block a patch has seen its row, after the
    column block that follows it everything. `attention` gives weights that are zero off the line.

    The arguments are those of `VisionTransformer`, but for these.

    Args:
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
    block_class = AxialEncoderBlock

    @classmethod
    def make_block(cls, i, config, dtype):
        return super().make_block(i, config, dtype, axis="column" if i % 2 else "row")


@keras.saving.register_keras_serializable(package="keras_vit")
class AxialResNet(Classifier):
    """A ResNet with row and column attention, with relative positions, in place of its 3x3 convolutions.

    Images (n, h, w, channels), float in [-1, 1], to logits (n, num_classes). As the authors' code in Scenic has it: the
    hybrids' ResNet, with group norm and standardized convolutions, and the mean over the last feature map. Every unit
    is the layer "blockB_unitU" (both from 1).

    Args:
        FIELDS
        preprocessing, labels, dtype, name, trainable: see `Classifier`.

    Raises:
        ConfigError: if an argument is invalid, or arguments contradict each other.

    >>> tuple(AxialResNet(image_size=(32, 64), depths=(1, 1), num_classes=10)(np.zeros((2, 32, 64, 3))).shape)
    (2, 10)
    """

    config: AxialResNetConfig
    config_class = AxialResNetConfig

    @staticmethod
    def make_graph(images, config, dtype):
        x = hybrid_backbone(images, config, dtype, AxialBottleneck)
        return classify_map(x, images, config, dtype)
