"""The table of variants: models of the paper, of later papers and our own, by name. Only `build` imports Keras."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from keras_vit.errors import ConfigError, UnknownNameError, describe_unknown
from keras_vit.models.axial.config import AxialResNetConfig, AxialViTConfig
from keras_vit.models.config import BackboneConfig, ResNetConfig, ViTConfig

if TYPE_CHECKING:
    import keras

    from keras_vit.models.preprocessing import Preprocessing, UnknownPreprocessing
    from keras_vit.models.resnet import ResNet
    from keras_vit.models.vit import VisionTransformer


@dataclass(frozen=True)
class Variant:
    """A row of the table: name, class and fields of the configuration, number of parameters with 1,000 classes."""

    name: str
    config_class: type
    fields: dict[str, Any]
    parameters: int

    @property
    def config(self) -> Any:  # a ViTConfig or a ResNetConfig; Any, so that the fields of either need no cast
        return self.config_class(**self.fields)

    @property
    def family(self) -> Literal["ViT", "hybrid", "ResNet"]:
        if issubclass(self.config_class, ResNetConfig):
            return "ResNet"
        return "hybrid" if "backbone" in self.fields else "ViT"


SIZE_FIELDS = ("hidden_size", "num_layers", "num_heads", "mlp_dim")
# B, L, H from Table 1; Ti, S from arXiv 2106.10270; So400m from big_vision's models/vit.py; g (DINOv2) and g-opt
# (SigLIP 2) from timm; Test and Mini are ours. b is Figure 4's: B with all hidden dimensions halved, also those of the
# heads.
SIZES = {
    "Test": (64, 4, 4, 128),
    "Mini": (96, 6, 3, 192),
    "Ti": (192, 12, 3, 768),
    "S": (384, 12, 6, 1536),
    "b": (384, 12, 12, 1536),
    "B": (768, 12, 12, 3072),
    "L": (1024, 24, 16, 4096),
    "H": (1280, 32, 16, 5120),
    "So400m": (1152, 27, 16, 4304),
    "g": (1536, 40, 24, 4096),
    "g-opt": (1536, 40, 16, 6144),
}


def vit(size, patch_size, **fields):
    return ViTConfig, {"patch_size": patch_size, **dict(zip(SIZE_FIELDS, SIZES[size], strict=True)), **fields}


def shape(num_layers, hidden_size, mlp_dim, patch_size):
    """A ViT of Figure 8. The figure states no heads; here they have 64 channels, as in Table 1's B and L."""
    sizes = {"num_layers": num_layers, "hidden_size": hidden_size, "mlp_dim": mlp_dim, "num_heads": hidden_size // 64}
    return f"ViT-{num_layers}x{hidden_size}x{mlp_dim}/{patch_size}", (ViTConfig, {"patch_size": patch_size, **sizes})


def hybrid(size, depths, patch_size=1):
    return vit(size, patch_size, backbone=BackboneConfig(depths=depths))


def resnet(depths, width_factor, **fields):
    return ResNetConfig, {"depths": depths, "width_factor": width_factor, **fields}


def axial_vit(size, patch_size):
    """A ViT of the given size with each block replaced by two axial blocks, along rows and along columns."""
    _, fields = vit(size, patch_size, classifier="gap")
    return AxialViTConfig, {**fields, "num_layers": 2 * fields["num_layers"]}


R50, R101, R152, R200 = (3, 4, 6, 3), (3, 4, 23, 3), (3, 8, 36, 3), (3, 24, 36, 3)

# A hybrid is named by its total stride, but R+ViT-Ti/16 has a stride of 32 (stem 4, patch 8), as in the authors' code.
VARIANTS: dict[str, Variant] = {
    name: Variant(name, config_class, fields, parameters)
    for name, (config_class, fields), parameters in (
        ("ViT-Test/4", vit("Test", 4, image_size=32), 206_376),
        # docs/paper_in_miniature.md: for images of 28 x 28 pixels; ResNet and hybrid take them at twice that size.
        ("ViT-Mini/4", vit("Mini", 4, image_size=28, classifier="gap"), 555_304),
        ("R20x0.5", resnet((2, 2, 2), 0.5, image_size=56), 1_378_184),
        ("ViT-Ti/16", vit("Ti", 16), 5_717_416),
        ("ViT-S/14", vit("S", 14), 22_004_584),
        ("ViT-S/16", vit("S", 16), 22_050_664),
        ("ViT-S/32", vit("S", 32), 22_878_952),
        ("ViT-b/32", vit("b", 32), 22_878_952),
        ("ViT-B/8", vit("B", 8), 86_576_872),
        ("ViT-B/14", vit("B", 14), 86_475_496),
        ("ViT-B/16", vit("B", 16), 86_567_656),
        ("ViT-B/30", vit("B", 30, image_size=240), 87_950_056),
        ("ViT-B/32", vit("B", 32), 88_224_232),
        ("ViT-L/14", vit("L", 14), 304_203_752),
        ("ViT-L/16", vit("L", 16), 304_326_632),
        ("ViT-L/32", vit("L", 32), 306_535_400),
        ("ViT-H/14", vit("H", 14), 632_045_800),
        ("ViT-So400m/14", vit("So400m", 14, classifier="map"), 428_833_704),
        ("ViT-g/14", vit("g", 14, gated_mlp=True, activation="silu"), 1_136_183_784),
        ("ViT-g-opt/16", vit("g-opt", 16, classifier="map"), 1_164_613_096),
        ("R+ViT-Ti/16", hybrid("Ti", (), patch_size=8), 6_337_704),
        ("R26+ViT-S/32", hybrid("S", (2, 2, 2, 2)), 36_431_912),
        ("R26+ViT-B/32", hybrid("B", (2, 2, 2, 2)), 101_383_976),
        ("R50+ViT-B/16", hybrid("B", (3, 4, 9)), 98_659_112),
        ("R50+ViT-B/32", hybrid("B", R50), 110_945_832),
        ("R50+ViT-L/16", hybrid("L", (3, 4, 9)), 316_483_624),
        ("R50+ViT-L/32", hybrid("L", R50), 328_994_856),
        ("R50x1", resnet(R50, 1), 25_549_352),
        ("R50x2", resnet(R50, 2), 97_988_712),
        ("R50x3", resnet(R50, 3), 217_319_080),
        ("R101x1", resnet(R101, 1), 44_541_480),
        ("R101x3", resnet(R101, 3), 387_934_888),
        ("R152x1", resnet(R152, 1), 60_185_128),
        ("R152x2", resnet(R152, 2), 236_335_208),
        ("R152x4", resnet(R152, 4), 936_533_224),
        ("R200x3", resnet(R200, 3), 568_633_000),
        # Appendix D.2, Figure 8: layers, hidden_size, mlp_dim and patch size scaled by twos from "the intersection of
        # all lines". The text names 8 layers, 64 and 16; the other steps are ours.
        (*shape(8, 1024, 2048, 32), 71_425_000),
        (*shape(2, 1024, 2048, 32), 21_025_768),
        (*shape(4, 1024, 2048, 32), 37_825_512),
        (*shape(16, 1024, 2048, 32), 138_623_976),
        (*shape(32, 1024, 2048, 32), 273_021_928),
        (*shape(64, 1024, 2048, 32), 541_817_832),
        (*shape(8, 256, 2048, 32), 11_577_832),
        (*shape(8, 512, 2048, 32), 27_332_584),
        (*shape(8, 2048, 2048, 32), 209_941_480),
        (*shape(8, 1024, 512, 32), 46_246_888),
        (*shape(8, 1024, 1024, 32), 54_639_592),
        (*shape(8, 1024, 4096, 32), 104_995_816),
        (*shape(8, 1024, 8192, 32), 172_137_448),
        (*shape(8, 1024, 2048, 16), 69_216_232),
        (*shape(8, 1024, 2048, 8), 69_228_520),
        (*shape(4, 512, 1024, 32), 10_524_648),
        (*shape(16, 2048, 4096, 16), 541_264_872),
        ("Axial-ViT-B/32", axial_vit("B", 32), 173_277_160),
        ("Axial-ViT-B/16", axial_vit("B", 16), 171_620_584),
        ("AxialResNet50", (AxialResNetConfig, {"depths": R50}), 19_373_640),
    )
}


def variant(name: str) -> Variant:
    """The table's row for a name.

    Raises:
        UnknownNameError: for any other name; the message lists the nearest ones.

    >>> variant("ViT-B/16").config.hidden_size
    768
    """
    if name in VARIANTS:
        return VARIANTS[name]
    raise UnknownNameError(
        describe_unknown("model", name, VARIANTS, "keras-vit list, in Python zoo.list(), shows all.")
    )


# {class of configurations: "module:class" of their models}
MODELS = {
    ViTConfig: "keras_vit.models.vit:VisionTransformer",
    ResNetConfig: "keras_vit.models.resnet:ResNet",
    AxialViTConfig: "keras_vit.models.axial.vit:AxialVisionTransformer",
    AxialResNetConfig: "keras_vit.models.axial.resnet:AxialResNet",
}


def build(
    config: ViTConfig | ResNetConfig,
    preprocessing: Preprocessing | UnknownPreprocessing | dict | None = None,
    labels: Sequence[str] | None = None,
    dtype: str | keras.DTypePolicy | None = None,
    name: str | None = None,
) -> VisionTransformer | ResNet:
    """Builds the model of a configuration, of the class that fits it, with random weights and a zero head.

    Raises:
        ConfigError: for anything but a configuration, such as a name.

    >>> build(keras_vit.models.variant("ViT-Ti/16").config).count_params()
    5717416
    """
    if type(config) not in MODELS:
        raise ConfigError(
            f"build takes a configuration, such as variant('R50x1').config. Received: {config!r}. zoo.load(name, "
            "weights=None) builds a model by its name."
        )
    cls = pkgutil.resolve_name(MODELS[type(config)])
    return cls(config, preprocessing=preprocessing, labels=labels, dtype=dtype, name=name)
