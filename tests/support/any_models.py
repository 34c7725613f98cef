"""Models of this package and of other libraries, with random weights: what `docs/any_model.md` and its tests export.

Each family is here by a small member, and at a small image size, so that all of them convert in minutes on two cores.
"""

import functools
import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A model's name, the library that it comes from, and a function that builds it with random weights."""

    name: str
    library: str
    build: Callable


def is_installed(library):
    return importlib.util.find_spec(library.partition(".")[0]) is not None


def build_from(module, name, **kwargs):
    """Builds `name` of a module that is imported only then."""
    return getattr(importlib.import_module(module), name)(**kwargs)


def row(title, library, module, name, **kwargs):
    return Row(title, library, functools.partial(build_from, module, name, **kwargs))


def ours(title, name="VisionTransformer", **kwargs):
    return row(title, "keras_vit", "keras_vit.models", name, num_classes=5, **kwargs)


def application(name, size=64):
    arguments = {"weights": None, "classifier_activation": None, "input_shape": (size, size, 3)}
    return row(name, "keras.applications", "keras.applications", name, **arguments)


def backbone(title, size=64, **kwargs):
    return row(title, "keras_hub", "keras_hub.models", f"{title}Backbone", image_shape=(size, size, 3), **kwargs)


def zero(title, folder, size=64, name=None, **kwargs):
    module = f"zeromodels.models.{folder}"
    return row(title, "zeromodels", module, name or f"{title}ImageClassify", image_size=size, num_classes=5, **kwargs)


TINY = {"image_size": 32, "patch_size": 8, "hidden_size": 16, "num_layers": 2, "num_heads": 2, "mlp_dim": 32}
ANY = {"image_size": (None, None), "stored_size": 32}
OURS = (
    ours("ViT", **TINY),
    ours("ViT, averaged tokens", **TINY, classifier="gap"),
    ours("ViT, exact GELU", **TINY, gelu_approximate=False),
    ours("ViT, pre-logits", **TINY, representation_size=12),
    ours("ViT, any size", **{**TINY, **ANY}, position_interpolation="bicubic"),
    ours("ViT, any size, rotary", **{**TINY, **ANY}, position_embedding="rope"),
    ours("ViT, unit vectors", **TINY, representation_size=12, unit_vectors=True),
    ours("Hybrid", **{**TINY, "image_size": 64, "patch_size": 1}, backbone={"depths": (1, 1), "width_factor": 0.5}),
    ours("ResNet", "ResNet", image_size=64, depths=(1, 1)),
    ours("Axial-ViT", "AxialVisionTransformer", **TINY),
    ours("AxialResNet", "AxialResNet", image_size=32, depths=(1, 1), width_factor=0.5),
)
APPLICATIONS = (
    application("ConvNeXtTiny"),
    application("DenseNet121"),
    application("EfficientNetB0"),
    application("EfficientNetV2B0"),
    application("InceptionResNetV2", 75),
    application("InceptionV3", 75),
    application("MobileNet"),
    application("MobileNetV2"),
    application("MobileNetV3Small"),
    application("NASNetMobile"),
    application("ResNet50"),
    application("ResNet50V2"),
    application("VGG16", 32),
    application("Xception", 71),
)
TRANSFORMER = {"num_layers": 2, "num_heads": 2, "hidden_dim": 32}
MOBILE_NET = {
    "stackwise_expansion": [[40, 56], [64, 144]],
    "stackwise_num_blocks": [2, 2],
    "stackwise_num_filters": [[16, 16], [24, 24]],
    "stackwise_kernel_size": [[3, 3], [5, 5]],
    "stackwise_num_strides": [[2, 1], [2, 1]],
    "stackwise_se_ratio": [[None, None], [0.25, 0.25]],
    "stackwise_activation": [["relu", "relu"], ["hard_swish", "hard_swish"]],
    "stackwise_padding": [[1, 1], [2, 2]],
    "output_num_filters": 144,
    "depthwise_filters": 8,
    "depthwise_stride": 2,
    "depthwise_residual": False,
    "squeeze_and_excite": 0.5,
    "last_layer_filter": 128,
}
HG_NET = {
    "depths": [1, 2],
    "embedding_size": 16,
    "hidden_sizes": [32, 64],
    "stem_channels": [3, 8, 16],
    "hidden_act": "relu",
    "use_learnable_affine_block": True,
    "stackwise_stage_filters": [(16, 8, 32, 1, 1, 3), (32, 16, 64, 2, 1, 3)],
    "apply_downsample": [False, True],
    "use_lightweight_conv_block": [False, True],
}
MIT = {
    "layerwise_depths": [1, 1],
    "num_layers": 2,
    "layerwise_num_heads": [1, 2],
    "layerwise_sr_ratios": [8, 4],
    "max_drop_path_rate": 0.1,
    "layerwise_patch_sizes": [7, 3],
    "layerwise_strides": [4, 2],
    "hidden_dims": [16, 32],
}
RES_NET = {
    "input_conv_filters": [64],
    "input_conv_kernel_sizes": [7],
    "stackwise_num_filters": [64, 128],
    "stackwise_num_blocks": [1, 1],
    "stackwise_num_strides": [1, 2],
    "block_type": "bottleneck_block",
}
CSP_NET = {
    "stem_filters": 16,
    "stem_kernel_size": 3,
    "stem_strides": 1,
    "stackwise_depth": [1, 2],
    "stackwise_strides": [2, 2],
    "stackwise_num_filters": [32, 64],
    "block_type": "dark_block",
    "stage_type": "dark",
}
VIT_DET = {"global_attention_layer_indices": [1], "num_output_channels": 16, "window_size": 2}
BACKBONES = (
    backbone("CSPNet", **CSP_NET),
    backbone("DINOV2", patch_size=8, intermediate_dim=64, position_embedding_shape=(64, 64, 3), **TRANSFORMER),
    backbone("DINOV3", patch_size=8, intermediate_dim=64, **TRANSFORMER),
    backbone("DeiT", patch_size=8, intermediate_dim=64, **TRANSFORMER),
    backbone("DenseNet", stackwise_num_repeats=[2, 2]),
    backbone("HGNetV2", **HG_NET),
    backbone("MiT", **MIT),
    backbone("MobileNet", **MOBILE_NET),
    backbone("ResNet", **RES_NET),
    backbone("SwinTransformer", embed_dim=16, depths=(2, 2), num_heads=(2, 4), window_size=4),
    backbone("VGG", stackwise_num_repeats=[1, 1], stackwise_num_filters=[8, 16]),
    backbone("ViT", patch_size=8, mlp_dim=64, **TRANSFORMER),
    backbone("ViTDet", 64, hidden_size=32, intermediate_dim=64, num_layers=2, num_heads=2, **VIT_DET),
    backbone("Xception", stackwise_conv_filters=[[16, 32], [32, 32]], stackwise_pooling=[True, False]),
)
ZERO = (
    zero("BEiT", "beit", name="BeitImageClassify", hidden_size=48, num_hidden_layers=2, num_attention_heads=3),
    zero("CaiT", "cait", embed_dim=48, depth=2, num_heads=3),
    zero("CLIP", "clip", vision_num_layers=2, vision_hidden_dim=64),
    zero("ConvMixer", "convmixer", embed_dim=32, depth=2),
    zero("ConvNeXt", "convnext", depths=(1, 1, 1, 1), projection_dim=(24, 32, 48, 64)),
    zero("ConvNeXtV2", "convnextv2", depths=(1, 1, 1, 1), projection_dim=(24, 32, 48, 64)),
    zero("DeiT", "deit", embed_dim=48, depth=2, num_heads=3, use_distillation=True),
    zero("DenseNet", "densenet", depths=(2, 2, 2, 2)),
    zero("EfficientFormer", "efficientformer", 224, depths=(1, 1, 1, 2), embed_dim=(16, 24, 32, 48)),
    zero("EfficientNet", "efficientnet"),
    zero("EfficientNetLite", "efficientnet_lite"),
    zero("EfficientNetV2", "efficientnetv2"),
    zero("FlexiViT", "flexivit", embed_dim=48, depth=2, num_heads=3),
    zero("InceptionNext", "inception_next", depths=(1, 1, 1, 1)),
    zero("InceptionV3", "inceptionv3", 96),
    zero("InceptionV4", "inceptionv4", 96),
    zero("LeViT", "levit", 224, name="LevitImageClassify", depths=(1, 1, 1)),
    zero("MaxViT", "maxvit", 64, depths=(1, 1, 1, 1), embed_dim=(16, 32, 64, 64), window_size=2),
    zero("MetaCLIP 2", "metaclip2", name="MetaClip2ImageClassify", vision_num_layers=2, vision_hidden_dim=64),
    zero("MiT", "mit", depths=(1, 1, 1, 1)),
    zero("MLPMixer", "mlp_mixer", embed_dim=48, depths=2),
    zero("MobileNetV2", "mobilenetv2"),
    zero("MobileNetV3", "mobilenetv3", config="small"),
    zero("MobileNetV4", "mobilenetv4"),
    zero("MobileViT", "mobilevit"),
    zero("MobileViTV2", "mobilevitv2", multiplier=0.5),
    zero("NextViT", "nextvit", depths=(1, 1, 5, 1)),
    zero("PiT", "pit", embed_dim=(16, 32, 64), depth=(1, 1, 1), distilled=True),
    zero("PoolFormer", "poolformer", embed_dim=(16, 24, 32, 48), depths=(1, 1, 1, 1)),
    zero("PVT", "pvt", name="PvtImageClassify", depths=(1, 1, 1, 1)),
    zero("PVTv2", "pvt_v2", name="PvtV2ImageClassify", depths=(1, 1, 1, 1), linear_attention=True),
    zero("RegNet", "regnet", depths=(1, 1, 1, 1), hidden_sizes=(64, 64, 128, 128)),
    zero("Res2Net", "res2net", depth=(1, 1, 1, 1)),
    zero("ResMLP", "resmlp", embed_dim=48, depth=2),
    zero("ResNet", "resnet", depths=(1, 1, 1, 1)),
    zero("ResNetV2", "resnetv2", depths=(1, 1, 1, 1), filters=(128, 128, 128, 128)),
    zero("ResNeXt", "resnext", depths=(1, 1, 1, 1)),
    zero("SENet", "senet", depths=(1, 1, 1, 1)),
    zero("SigLIP", "siglip", vision_hidden_dim=48, vision_num_layers=2, vision_num_heads=3, vision_mlp_dim=96),
    zero("Swin", "swin", embed_dim=24, depths=(2, 2, 2, 2)),
    zero("SwinV2", "swinv2", embed_dim=24, depths=(2, 2, 2, 2), window_size=4),
    zero("ViT", "vit", embed_dim=48, depth=2, num_heads=3),
    zero("Xception", "xception", 96),
)
ROWS = OURS + APPLICATIONS + BACKBONES + ZERO
