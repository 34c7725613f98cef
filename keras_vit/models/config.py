"""What a model is made of, as data: the configurations and the table of variants. Imports no Keras."""

import numbers
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, get_args

from keras_vit.errors import ConfigError, UnknownNameError, describe_unknown, is_whole


def require(condition, message):
    if not condition:
        raise ConfigError(message)


MOST_STAGES = 16  # each halves the image


def pair(name, size):
    """A whole number, or a pair of them, as a pair of ints (height, width)."""
    sides = (size, size) if is_whole(size) else size
    fits = isinstance(sides, (tuple, list)) and len(sides) == 2 and all(is_whole(side, 1) for side in sides)
    require(fits, f"{name} must be a positive whole number, or two of them (height, width). Received: {name}={size!r}.")
    return int(sides[0]), int(sides[1])


def set_counts(config, *names, least=1):
    """Makes the fields of those names ints, of at least `least`."""
    for name in names:
        value = getattr(config, name)
        rule = "a positive whole number" if least else "a whole number, 0 (for features) or more"
        require(is_whole(value, least), f"{name} must be {rule}. Received: {name}={value!r}.")
        object.__setattr__(config, name, int(value))


def require_fractions(config, *names):
    for name in names:
        value = getattr(config, name)
        require(is_number(value) and 0 <= value < 1, f"{name} must be in [0, 1). Received: {name}={value!r}.")


def is_number(value):
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


@dataclass(frozen=True, kw_only=True)
class BackboneConfig:
    """The ResNet under a hybrid (section 3.1): standardized convolution, group norm and ReLU after each convolution.

    `depths` counts the units of each stage: (3, 4, 9) is the paper's option (ii), (3, 4, 6, 3) option (i), () the bare
    stem. Channels of the stem are 64 * width_factor. `group_norm_epsilon` and the two kernel epsilons are the source's:
    a kernel is standardized as (w - mean) / (sqrt(var + kernel_variance_epsilon) + kernel_std_epsilon).
    """

    depths: tuple[int, ...] = (3, 4, 9)
    width_factor: float = 1
    group_norm_epsilon: float = 1e-6
    kernel_variance_epsilon: float = 0.0
    kernel_std_epsilon: float = 1e-5

    def __post_init__(self):
        set_depths(self)
        require_fractions(self, "group_norm_epsilon", "kernel_variance_epsilon", "kernel_std_epsilon")

    @property
    def stride(self) -> int:
        """Pixels per cell of the feature map: 4 in the stem, doubled by every stage after the first."""
        return 4 * 2 ** max(len(self.depths) - 1, 0)


def set_depths(config):
    """Makes depths a tuple of ints, for a width that the norms' groups divide."""
    depths = config.depths
    fits = isinstance(depths, (tuple, list)) and all(is_whole(depth, 1) for depth in depths)
    require(fits, f"depths must hold positive ints, one per stage. Received: depths={depths!r}.")
    require(len(depths) <= MOST_STAGES, f"depths must name at most {MOST_STAGES} stages. Received: {len(depths)}.")
    object.__setattr__(config, "depths", tuple(map(int, depths)))
    factor = config.width_factor
    require(
        is_number(factor) and 0 < factor < 1024 and 64 * factor % 32 == 0,
        f"width_factor must make 64 * width_factor a multiple of the 32 groups. Received: {factor!r}.",
    )


# What a ViTConfig knows that is an argument of its encoder blocks, under the same names.
BLOCK_ARGUMENTS = (
    "num_heads",
    "mlp_dim",
    "dropout_rate",
    "attention_dropout_rate",
    "gelu_approximate",
    "layer_norm_epsilon",
    "relative_patches",
)


# What tells patches apart by their place, and where it is added (Appendix D.4, the rows and columns of Table 8);
# sincos2d is big_vision's.
PositionEmbeddingKind = Literal["none", "1d", "2d", "relative", "sincos2d"]
PositionEmbeddingPlace = Literal["stem", "every-layer", "every-layer-shared"]
# What makes probabilities of the logits: softmax where an image has one class, sigmoid where it has several or none.
ProbabilityKind = Literal["softmax", "sigmoid"]


@dataclass(frozen=True, kw_only=True)
class ViTConfig:
    """A Vision Transformer or a hybrid; fields are the arguments of `VisionTransformer`, where they are explained."""

    image_size: tuple[int, int] = (224, 224)
    patch_size: tuple[int, int] = (16, 16)
    hidden_size: int = 768
    num_layers: int = 12
    num_heads: int = 12
    mlp_dim: int = 3072
    num_classes: int = 1000
    representation_size: int | None = None
    classifier: Literal["token", "gap"] = "token"
    dropout_rate: float = 0.0
    attention_dropout_rate: float = 0.0
    num_channels: int = 3
    gelu_approximate: bool = True
    layer_norm_epsilon: float = 1e-6
    backbone: BackboneConfig | None = None
    position_embedding: PositionEmbeddingKind = "1d"
    position_embedding_at: PositionEmbeddingPlace = "stem"
    stochastic_depth_rate: float = 0.0
    probabilities: ProbabilityKind = "softmax"

    def __post_init__(self):
        object.__setattr__(self, "image_size", pair("image_size", self.image_size))
        object.__setattr__(self, "patch_size", pair("patch_size", self.patch_size))
        if isinstance(self.backbone, dict):
            object.__setattr__(self, "backbone", BackboneConfig(**self.backbone))
        require(
            self.backbone is None or isinstance(self.backbone, BackboneConfig),
            f"backbone must be a BackboneConfig, or None for plain ViT. Received: backbone={self.backbone!r}.",
        )
        set_counts(self, "hidden_size", "num_layers", "num_heads", "mlp_dim", "num_channels")
        set_counts(self, "num_classes", least=0)
        if self.representation_size is True:
            object.__setattr__(self, "representation_size", self.hidden_size)
        if self.representation_size is not None:
            set_counts(self, "representation_size")
        require_fractions(self, "dropout_rate", "attention_dropout_rate", "layer_norm_epsilon", "stochastic_depth_rate")
        require(
            isinstance(self.gelu_approximate, bool),
            f"gelu_approximate must be True or False. Received: gelu_approximate={self.gelu_approximate!r}.",
        )
        require(
            self.classifier in ("token", "gap"), f"classifier must be 'token' or 'gap'. Received: {self.classifier!r}."
        )
        require(
            self.hidden_size % self.num_heads == 0,
            f"hidden_size must be divisible by num_heads. Received: {self.hidden_size} and {self.num_heads}.",
        )
        require_whole_patches(self.image_size, self.pixels_per_token)
        require_positions(self)
        require_probabilities(self)

    def block_arguments(self, i: int) -> dict[str, Any]:
        """What the `EncoderBlock` of number i, from 0, is made with; the rate of stochastic depth grows with i."""
        rate = self.stochastic_depth_rate * i / max(self.num_layers - 1, 1)
        return {name: getattr(self, name) for name in BLOCK_ARGUMENTS} | {"stochastic_depth_rate": rate}

    @property
    def pixels_per_token(self) -> tuple[int, int]:
        """(height, width) in pixels of the image area behind one token."""
        stride = self.backbone.stride if self.backbone else 1
        return self.patch_size[0] * stride, self.patch_size[1] * stride

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patch tokens."""
        (height, width), (rows, columns) = self.image_size, self.pixels_per_token
        return height // rows, width // columns

    @property
    def position_layers(self) -> tuple[str, ...]:
        """Names of the layers that add position embeddings: one after the stem, or one before each block."""
        if self.position_embedding in ("none", "relative"):
            return ()
        if self.position_embedding_at == "stem":
            return ("posembed_input",)
        shared = self.position_embedding_at == "every-layer-shared"
        return tuple("posembed_shared" if shared else f"posembed_{i}" for i in range(self.num_layers))

    @property
    def relative_patches(self) -> int | None:
        """How many patches attend to each other by relative position embeddings, too; None for no such embeddings."""
        return self.grid[0] * self.grid[1] if self.position_embedding == "relative" else None


def require_positions(config):
    """Refuses position embeddings that Table 8 does not have."""
    kind, place = config.position_embedding, config.position_embedding_at
    for name, value, known in (
        ("position_embedding", kind, get_args(PositionEmbeddingKind)),
        ("position_embedding_at", place, get_args(PositionEmbeddingPlace)),
    ):
        require(value in known, f"{name} must be one of {', '.join(known)}. Received: {name}={value!r}.")
    require(
        place == "stem" or kind in ("1d", "2d"),
        f"position_embedding_at={place!r} says where 1d and 2d embeddings are added. Received: "
        f"position_embedding={kind!r}. Leave position_embedding_at out.",
    )
    require(
        kind != "2d" or config.hidden_size % 2 == 0,
        f"2d position embeddings need an even hidden_size. Received: hidden_size={config.hidden_size}.",
    )
    require(
        kind != "sincos2d" or (config.hidden_size % 4 == 0 and config.hidden_size >= 8),
        f"sincos2d needs a hidden_size of 8, 12, 16, ... Received: hidden_size={config.hidden_size}.",
    )


def require_probabilities(config):
    kind, known = config.probabilities, get_args(ProbabilityKind)
    require(kind in known, f"probabilities must be one of {', '.join(known)}. Received: probabilities={kind!r}.")


def require_whole_patches(image_size, step):
    if min(*image_size, *step) > 0 and image_size[0] % step[0] == 0 and image_size[1] % step[1] == 0:
        return
    nearest = (
        tuple(max(round(size / s), 1) * s for size, s in zip(image_size, step, strict=True)) if min(step) else step
    )
    raise ConfigError(
        f"image_size must be a whole number of patches. Received: image_size={image_size} with patches of "
        f"{step[0]}x{step[1]} pixels; the nearest size that fits is {nearest}."
    )


@dataclass(frozen=True, kw_only=True)
class ResNetConfig:
    """A BiT-style ResNet; fields are the arguments of `ResNet`, where they are explained."""

    image_size: tuple[int, int] | None = (224, 224)
    depths: tuple[int, ...] = (3, 4, 6, 3)
    width_factor: float = 1
    num_classes: int = 1000
    num_channels: int = 3
    group_norm_epsilon: float = 1e-5
    kernel_variance_epsilon: float = 1e-10
    probabilities: ProbabilityKind = "softmax"

    def __post_init__(self):
        if self.image_size is not None:
            object.__setattr__(self, "image_size", pair("image_size", self.image_size))
        set_counts(self, "num_channels")
        set_counts(self, "num_classes", least=0)
        require_fractions(self, "group_norm_epsilon", "kernel_variance_epsilon")
        set_depths(self)
        require(self.depths, "depths must name at least one stage. Received: depths=().")
        require_probabilities(self)


@dataclass(frozen=True, kw_only=True)
class AxialViTConfig(ViTConfig):
    """An Axial-ViT (Appendix D.6); fields are the arguments of `AxialVisionTransformer`, where they are explained."""

    def __post_init__(self):
        super().__post_init__()
        require(
            self.num_layers % 2 == 0,
            "num_layers of an Axial-ViT must be even: a row block and a column block replace each block of ViT. "
            f"Received: num_layers={self.num_layers}.",
        )
        require(
            self.position_embedding != "relative",
            "An Axial-ViT has position_embedding 'none', '1d', '2d' or 'sincos2d'. Received: 'relative', which spans "
            "all patches.",
        )


@dataclass(frozen=True, kw_only=True)
class AxialResNetConfig(ResNetConfig):
    """An AxialResNet (Appendix D.6); fields are the arguments of `AxialResNet`, where they are explained."""

    group_norm_epsilon: float = 1e-4
    kernel_variance_epsilon: float = 0.0
    kernel_std_epsilon: float = 1e-5
    num_heads: int = 8

    def __post_init__(self):
        super().__post_init__()
        set_counts(self, "num_heads")
        require_fractions(self, "kernel_std_epsilon")
        require(self.image_size is not None, "AxialResNet needs image_size: its position embeddings depend on it.")
        fits = all(side % self.stride == 0 for side in self.image_size or ())
        require(
            fits, f"image_size must be multiples of {self.stride}, the stride. Received: image_size={self.image_size}."
        )
        filters = int(64 * self.width_factor)
        require(
            filters % (2 * self.num_heads) == 0,
            f"num_heads must divide half of the {filters} channels of the first stage. Received: {self.num_heads}.",
        )

    @property
    def stride(self) -> int:
        """Pixels per cell of the last feature map."""
        return 4 * 2 ** (len(self.depths) - 1)


class ModelFields(TypedDict, total=False):
    """The fields of all configurations that `zoo.load` takes beside its own arguments, for type checkers."""

    patch_size: int | tuple[int, int]
    hidden_size: int
    num_layers: int
    mlp_dim: int
    representation_size: int | None
    classifier: Literal["token", "gap"]
    dropout_rate: float
    attention_dropout_rate: float
    num_channels: int
    gelu_approximate: bool
    layer_norm_epsilon: float
    backbone: BackboneConfig | None
    position_embedding: PositionEmbeddingKind
    position_embedding_at: PositionEmbeddingPlace
    depths: tuple[int, ...]
    width_factor: float
    group_norm_epsilon: float
    kernel_variance_epsilon: float
    kernel_std_epsilon: float
    stochastic_depth_rate: float
    probabilities: ProbabilityKind


# What a ResNet does not have, and the value that asks for none of it.
VIT_ALONE = {
    "dropout_rate": 0.0,
    "attention_dropout_rate": 0.0,
    "representation_size": None,
    "position_embedding": "none",
    "position_embedding_at": "stem",
    "stochastic_depth_rate": 0.0,
}


def drop_inapplicable(config, fields):
    """The fields asked for, without those that a ResNet lacks and whose value asks for nothing, such as no dropout.

    Raises:
        ConfigError: when a field that a ResNet lacks asks for something.
    """
    if not isinstance(config, ResNetConfig):
        return fields
    for name, none in VIT_ALONE.items():
        value = fields.get(name, none)
        require(value == none, f"A ResNet has no {name}; ViTs and hybrids have. Received: {name}={value!r}.")
    return {name: value for name, value in fields.items() if name not in VIT_ALONE}


@dataclass(frozen=True)
class Variant:
    """A row of the table: a name of the paper, its configuration, and its parameters with 1,000 classes."""

    name: str
    config: Any  # a ViTConfig or a ResNetConfig; Any, so that the fields of either need no cast
    parameters: int

    @property
    def family(self) -> Literal["ViT", "hybrid", "ResNet"]:
        if isinstance(self.config, ResNetConfig):
            return "ResNet"
        return "hybrid" if self.config.backbone else "ViT"


# hidden_size, num_layers, num_heads, mlp_dim: B, L, H from Table 1; Ti, S from arXiv 2106.10270; Test and Mini are
# ours. b is Figure 4's, B with all hidden dimensions halved, those of the heads too.
SIZES = {
    "Test": (64, 4, 4, 128),
    "Mini": (96, 6, 3, 192),
    "Ti": (192, 12, 3, 768),
    "S": (384, 12, 6, 1536),
    "b": (384, 12, 12, 1536),
    "B": (768, 12, 12, 3072),
    "L": (1024, 24, 16, 4096),
    "H": (1280, 32, 16, 5120),
}


def vit(size, patch_size, **fields):
    hidden_size, num_layers, num_heads, mlp_dim = SIZES[size]
    return ViTConfig(
        patch_size=patch_size,
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=num_heads,
        mlp_dim=mlp_dim,
        **fields,
    )


def shape(num_layers, hidden_size, mlp_dim, patch_size):
    """A ViT of Figure 8, which does not name its heads: they have 64 channels, as those of Table 1's B and L."""
    sizes = {"num_layers": num_layers, "hidden_size": hidden_size, "mlp_dim": mlp_dim, "num_heads": hidden_size // 64}
    return f"ViT-{num_layers}x{hidden_size}x{mlp_dim}/{patch_size}", ViTConfig(patch_size=patch_size, **sizes)


def hybrid(size, depths, patch_size=1):
    return vit(size, patch_size, backbone=BackboneConfig(depths=depths))


def resnet(depths, width_factor, **fields):
    return ResNetConfig(depths=depths, width_factor=width_factor, **fields)


def axial_vit(size, patch_size):
    """Two axial blocks, of rows and of columns, for each block of that size."""
    config = vit(size, patch_size)
    fields = {name: getattr(config, name) for name in ("patch_size", "hidden_size", "num_heads", "mlp_dim")}
    return AxialViTConfig(num_layers=2 * config.num_layers, classifier="gap", **fields)


R50, R101, R152, R200 = (3, 4, 6, 3), (3, 4, 23, 3), (3, 8, 36, 3), (3, 24, 36, 3)

# A hybrid is named by its total stride; that of R+ViT-Ti/16 is 32 in truth (stem 4, patch 8), as in the authors' code.
VARIANTS: dict[str, Variant] = {
    name: Variant(name, config, parameters)
    for name, config, parameters in (
        ("ViT-Test/4", vit("Test", 4, image_size=32), 206_376),
        # docs/paper_in_miniature.md: for images of 28 x 28 pixels, the ResNet's and the hybrid's twice as large.
        ("ViT-Mini/4", vit("Mini", 4, image_size=28, classifier="gap"), 555_304),
        ("R20x0.5", resnet((2, 2, 2), 0.5, image_size=56), 1_378_184),
        ("ViT-Ti/16", vit("Ti", 16), 5_717_416),
        ("ViT-S/16", vit("S", 16), 22_050_664),
        ("ViT-S/32", vit("S", 32), 22_878_952),
        ("ViT-b/32", vit("b", 32), 22_878_952),
        ("ViT-B/8", vit("B", 8), 86_576_872),
        ("ViT-B/16", vit("B", 16), 86_567_656),
        ("ViT-B/30", vit("B", 30, image_size=240), 87_950_056),
        ("ViT-B/32", vit("B", 32), 88_224_232),
        ("ViT-L/16", vit("L", 16), 304_326_632),
        ("ViT-L/32", vit("L", 32), 306_535_400),
        ("ViT-H/14", vit("H", 14), 632_045_800),
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
        ("AxialResNet50", AxialResNetConfig(depths=R50), 19_373_640),
    )
}


def variant(name: str) -> Variant:
    """The table's row of that name.

    Raises:
        UnknownNameError: for any other name; the message has the nearest ones.

    >>> variant("ViT-B/16").config.hidden_size
    768
    """
    if name in VARIANTS:
        return VARIANTS[name]
    raise UnknownNameError(
        describe_unknown("model", name, VARIANTS, "keras-vit list, in Python zoo.list(), shows all.")
    )
