"""The configurations of models, as data. Imports no Keras."""

import dataclasses
import functools
import inspect
import numbers
import textwrap
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypedDict, get_args, get_origin, get_type_hints

from keras_vit.errors import COUNT, ConfigError
from keras_vit.models.tensors import BIT, VIT, Row


def require(condition, message):
    if not condition:
        raise ConfigError(message)


MOST_STAGES = 16  # each halves the image


def pair(name, size):
    """A whole number, or a pair of them, as a pair of ints (height, width)."""
    sides = (size, size) if size in COUNT else size
    fits = isinstance(sides, (tuple, list)) and len(sides) == 2 and all(side in COUNT for side in sides)
    require(fits, f"{name} must be a positive whole number, or two of them (height, width). Received: {name}={size!r}.")
    return int(sides[0]), int(sides[1])


def is_free_size(size):
    """Whether an image_size is (None, None), for images of any size."""
    return isinstance(size, (tuple, list)) and tuple(size) == (None, None)


def set_image_size(config, free):
    """Makes image_size a pair of ints, or `free`, for images of any size, if both sides are None."""
    size = config.image_size
    is_free = is_free_size(size) or (size is None and free is None)
    object.__setattr__(config, "image_size", free if is_free else pair("image_size", size))


def set_counts(config, *names, least=1):
    """Makes the named fields ints, at least `least`, 0 or 1."""
    for name in names:
        value = getattr(config, name)
        rule = "a positive whole number" if least else "a whole number, 0 or more"
        require(value in COUNT._replace(least=least), f"{name} must be {rule}. Received: {name}={value!r}.")
        object.__setattr__(config, name, int(value))


def is_number(value):
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def require_fractions(config, *names):
    for name in names:
        value = getattr(config, name)
        require(is_number(value) and 0 <= value < 1, f"{name} must be in [0, 1). Received: {name}={value!r}.")


def set_depths(config):
    """Makes depths a tuple of ints, and checks that the norms' groups divide the width."""
    depths = config.depths
    fits = isinstance(depths, (tuple, list)) and all(depth in COUNT for depth in depths)
    require(fits, f"depths must hold positive ints, one per stage. Received: depths={depths!r}.")
    require(len(depths) <= MOST_STAGES, f"depths must name at most {MOST_STAGES} stages. Received: {len(depths)}.")
    object.__setattr__(config, "depths", tuple(map(int, depths)))
    factor = config.width_factor
    require(
        is_number(factor) and 0 < factor < 1024 and 64 * factor % 32 == 0,
        f"width_factor must make 64 * width_factor a multiple of the 32 groups. Received: {factor!r}.",
    )


@dataclass(frozen=True, kw_only=True)
class BackboneConfig:
    """The ResNet under a hybrid (section 3.1): standardized convolution, group norm and ReLU after each convolution.

    `depths` counts the units of each stage: (3, 4, 9) is the paper's option (ii), (3, 4, 6, 3) option (i), () the bare
    stem. The stem has 64 * width_factor channels. The defaults of `group_norm_epsilon` and the kernel epsilons are the
    authors'. A kernel is standardized as (w - mean) / (sqrt(var + kernel_variance_epsilon) + kernel_std_epsilon).
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


# Kinds of position embeddings, and where they are added (Appendix D.4, the rows and columns of Table 8); sincos2d is
# big_vision's, rope DINOv3's.
PositionEmbeddingKind = Literal["none", "1d", "2d", "relative", "sincos2d", "rope"]
PositionEmbeddingPlace = Literal["stem", "every-layer", "every-layer-shared"]
ProbabilityKind = Literal["softmax", "sigmoid"]
Probabilities = Annotated[
    ProbabilityKind,
    'how the logits, the model\'s outputs, become probabilities: by "softmax" if an image has exactly one class, by '
    '"sigmoid" if it may have several or none.',
]


Classifier = Literal["token", "gap", "token+gap", "map", "patches"]
MapClassifier = Literal["gap", "patches"]  # for a ResNet's last feature map
Vector = Literal["output", "features", "token", "gap", "token+gap"]  # of an image; see `keras_vit.embed`
Activation = Literal["gelu", "quick_gelu", "silu"]
QkvBias = Literal["qkv", "qv", "none"]
PositionInterpolation = Literal["linear", "bilinear", "bicubic", "bicubic-plain", "dinov2"]


def fixed(default):
    """A field of a configuration that a checkpoint's weights decide, so that loading cannot change it."""
    return dataclasses.field(default=default, metadata={"fixed": True})


@functools.cache
def field_types(config_class):
    return get_type_hints(config_class)


def require_known_values(config):
    """Checks the fields of type bool, and those whose type is a list of choices."""
    config_class: Any = type(config)
    types = field_types(config_class)
    for field in dataclasses.fields(config):
        name, kind, value = field.name, types[field.name], getattr(config, field.name)
        if kind is bool:
            require(isinstance(value, bool), f"{name} must be True or False. Received: {name}={value!r}.")
        elif get_origin(kind) is Literal:
            known = get_args(kind)
            require(value in known, f"{name} must be one of {', '.join(known)}. Received: {name}={value!r}.")


def require_positions(config):
    """Refuses position embeddings that do not exist, or do not fit the other fields."""
    kind, place = config.position_embedding, config.position_embedding_at
    require(
        kind != "relative" or not config.has_free_size,
        "Relative position embeddings are of one grid: image_size=(None, None) needs another position_embedding. Pass "
        "image_size=(height, width); zoo.load resizes the embeddings to it.",
    )
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
    require(
        kind != "rope" or config.hidden_size % (4 * config.num_heads) == 0,
        f"rope needs heads of 4, 8, 12, ... channels. Received: hidden_size={config.hidden_size} in "
        f"{config.num_heads} heads.",
    )
    require(
        config.class_token_position or (kind, place) == ("1d", "stem"),
        "class_token_position=False needs 1d embeddings that are added at the stem. Received: "
        f"position_embedding={kind!r}, position_embedding_at={place!r}. Leave class_token_position out.",
    )


def require_tokens(config):
    """Refuses a classifier whose token is missing or whose norm does not fit."""
    value, reads = config.class_token, config.classifier in ("token", "token+gap")
    require(
        value is None or isinstance(value, bool),
        f"class_token must be True, False or None. Received: class_token={value!r}.",
    )
    require(
        not reads or value is not False,
        f"classifier={config.classifier!r} reads the class token. Received: class_token=False. Choose gap or map.",
    )
    require(
        config.classifier in ("gap", "patches") or not config.norm_after_pool,
        f"norm_after_pool=True needs classifier='gap' or 'patches'. Received: classifier={config.classifier!r}.",
    )


def require_whole_patches(image_size, step, drop_remainder):
    sides = list(zip(image_size, step, strict=True))
    nearest = tuple(max(round(size / s), 1) * s for size, s in sides)
    require(
        all(size >= s if drop_remainder else size % s == 0 for size, s in sides),
        f"image_size must be a whole number of patches. Received: image_size={image_size} with patches of "
        f"{step[0]}x{step[1]} pixels; the nearest size that fits is {nearest}.",
    )


@dataclass(frozen=True, kw_only=True)
class ViTConfig:
    """A Vision Transformer or a hybrid; fields are the arguments of `VisionTransformer`, where they are explained."""

    image_size: Annotated[
        tuple[int, int] | tuple[None, None],
        "int or (height, width) in pixels; a whole number of patches, unless drop_remainder is True. (None, None) for "
        "images of any such size: the model then resizes its position embeddings in each call.",
    ] = (224, 224)
    patch_size: Annotated[
        tuple[int, int], "int or (height, width), in pixels, or in cells of the backbone's feature map."
    ] = (16, 16)
    hidden_size: Annotated[int, "width D of the tokens."] = 768
    num_layers: Annotated[int, "encoder blocks L."] = 12
    num_heads: Annotated[int, "attention heads k; divides hidden_size."] = 12
    mlp_dim: Annotated[int, "width of the MLPs' hidden layer."] = 3072
    num_classes: Annotated[int, "width of the logits; 0 for the features that a head would read."] = 1000
    representation_size: Annotated[
        int | None,
        "width of the tanh layer before the head (pre-training, section 3.1); True for hidden_size, None for none.",
    ] = None
    classifier: Annotated[
        Classifier,
        '"token" reads the class token, "gap" the mean of the patch tokens (Appendix D.3), "token+gap" both side by '
        'side, "map" attention pooling by one learned query (SigLIP). "patches" is for segmentation: every patch has '
        "logits, resized to the image's size, (n, h, w, num_classes); with num_classes=0 the outputs are the patches' "
        "features, (n, patches, hidden_size).",
    ] = "token"
    dropout_rate: Annotated[
        float, "dropout after every dense layer but q, k, v, and after the position embeddings (Appendix B.1); [0, 1)."
    ] = 0.0
    attention_dropout_rate: Annotated[
        float, "dropout of the attention weights, [0, 1); 0 in every official configuration."
    ] = 0.0
    num_channels: Annotated[int, "of the images."] = 3
    gelu_approximate: Annotated[
        bool, "GELU by tanh, as the official weights expect; False: exact GELU, for weights of timm and transformers."
    ] = True
    layer_norm_epsilon: Annotated[float, "added to the variance; 1e-6 in the official code."] = 1e-6
    backbone: Annotated[
        BackboneConfig | None,
        "a `BackboneConfig` (or its fields as a dict) puts a ResNet before the patches; None for ViT.",
    ] = None
    position_embedding: Annotated[
        PositionEmbeddingKind,
        '"1d" is the paper\'s. Appendix D.4 tries "none", a bag of patches; "2d", a row\'s embedding joined to a '
        'column\'s; "relative", one for each offset between patches in raster order, in the attention of every block. '
        '"sincos2d" is big_vision\'s: fixed sines and cosines of column and row. "rope" is DINOv3\'s: queries and keys '
        "of every block are rotated by row and column.",
    ] = fixed("1d")
    position_embedding_at: Annotated[
        PositionEmbeddingPlace,
        'where 1d and 2d embeddings are added: "stem", once before the encoder; "every-layer", to each block\'s input, '
        'each block with its own; "every-layer-shared", to each block\'s input, always the same ones.',
    ] = fixed("stem")
    stochastic_depth_rate: Annotated[
        float,
        "probability that training skips a branch of the last block for an example, [0, 1); from 0 in the first block "
        "on, it grows linearly (arXiv 1603.09382, section 3).",
    ] = 0.0
    probabilities: Probabilities = "softmax"
    activation: Annotated[
        Activation, 'of the MLPs: "gelu", "quick_gelu" (CLIP) or "silu" (gated MLPs of DINOv2 and DINOv3).'
    ] = "gelu"
    gated_mlp: Annotated[
        bool, "whether MLPs multiply their hidden layer by an activated second dense layer; with silu, SwiGLU."
    ] = fixed(False)
    pre_norm: Annotated[bool, "whether a layer norm precedes the first block (CLIP)."] = fixed(False)
    patch_bias: Annotated[bool, "whether the patch embedding has a bias; CLIP's has none."] = fixed(True)
    head_bias: Annotated[bool, "whether the head has a bias; CLIP's projection has none."] = True
    qkv_bias: Annotated[QkvBias, 'which of queries, keys and values have a bias: "qkv", "qv" (DINOv3) or "none".'] = (
        fixed("qkv")
    )
    layer_scale: Annotated[
        float | None, "initial value of the learned scales of each block's two branches (DINOv2); None for no scales."
    ] = fixed(None)
    num_registers: Annotated[int, "learned tokens between class token and patches (arXiv 2309.16588)."] = fixed(0)
    class_token: Annotated[
        bool | None, "whether a class token precedes the patches; None: if the classifier reads it."
    ] = None
    class_token_position: Annotated[
        bool, "whether the class token has a 1d position embedding; False in DeiT-III. Registers have none."
    ] = fixed(True)
    drop_remainder: Annotated[
        bool, "ignore the last pixels of images that are no whole number of patches (SigLIP's So400m/14 at 384)."
    ] = False
    position_interpolation: Annotated[
        PositionInterpolation,
        "how position embeddings are resized to another grid, by `zoo.load` or, with image_size=(None, None), by each "
        'call: "linear" as ViT\'s authors do, "bilinear" as FlexiViT\'s, "bicubic" as timm, "bicubic-plain" (not '
        'antialiased) as transformers, "dinov2" as its authors.',
    ] = "linear"
    norm_after_pool: Annotated[bool, "whether the last norm follows the patches' mean (EVA, timm's SBB)."] = fixed(
        False
    )
    unit_vectors: Annotated[
        bool,
        "whether the head reads vectors of length 1 and the layer before it is linear, not tanh, as in models of "
        "`zoo.zero_shot`.",
    ] = False

    stored_size: Annotated[
        tuple[int, int] | None,
        "for image_size=(None, None), the size that position embeddings are stored for, 224 by default; else None.",
    ] = None

    in_torch: ClassVar[bool] = True  # whether timm or transformers have such models, and names for their weights
    block_name: ClassVar[str] = "encoderblock"  # of a block in the authors' files
    tensor_rows: ClassVar[tuple[Row, ...]] = VIT

    def __post_init__(self):
        set_image_size(self, (None, None))
        if self.has_free_size:
            object.__setattr__(self, "stored_size", pair("stored_size", self.stored_size or 224))
        object.__setattr__(self, "patch_size", pair("patch_size", self.patch_size))
        if isinstance(self.backbone, dict):
            object.__setattr__(self, "backbone", BackboneConfig(**self.backbone))
        require(
            self.backbone is None or isinstance(self.backbone, BackboneConfig),
            f"backbone must be a BackboneConfig, or None for plain ViT. Received: backbone={self.backbone!r}.",
        )
        set_counts(self, "hidden_size", "num_layers", "num_heads", "mlp_dim", "num_channels")
        set_counts(self, "num_classes", "num_registers", least=0)
        if self.representation_size is True:
            object.__setattr__(self, "representation_size", self.hidden_size)
        if self.representation_size is not None:
            set_counts(self, "representation_size")
        require_fractions(self, "dropout_rate", "attention_dropout_rate", "layer_norm_epsilon", "stochastic_depth_rate")
        require_known_values(self)
        require(
            self.layer_scale is None or (is_number(self.layer_scale) and abs(self.layer_scale) < 1e6),
            f"layer_scale must be a number, or None for no scales. Received: layer_scale={self.layer_scale!r}.",
        )
        require(
            self.hidden_size % self.num_heads == 0,
            f"hidden_size must be divisible by num_heads. Received: {self.hidden_size} and {self.num_heads}.",
        )
        require(
            self.has_free_size or self.stored_size is None,
            f"stored_size needs image_size=(None, None). Received: stored_size={self.stored_size!r} and "
            f"image_size={self.image_size}. Leave stored_size out.",
        )
        require(
            self.backbone is None or not self.drop_remainder,
            "drop_remainder is for models without a backbone, which pads images to whole patches. Leave it out.",
        )
        require_whole_patches(self.own_size, self.pixels_per_token, self.drop_remainder)
        require_positions(self)
        require_tokens(self)

    def block_rate(self, i: int) -> float:
        """The rate of stochastic depth of block i, from 0; it grows linearly with i."""
        return self.stochastic_depth_rate * i / max(self.num_layers - 1, 1)

    @property
    def block_parameters(self) -> int:
        """The number of weights of an encoder block, without its relative position embeddings."""
        d, scales = self.hidden_size, 0 if self.layer_scale is None else 2
        biases = {"qkv": 4, "qv": 3, "none": 1}[self.qkv_bias]
        return 4 * d * d + biases * d + self.mlp_parameters + 2 * 2 * d + scales * d

    @property
    def mlp_parameters(self) -> int:
        """The number of weights of an MLP."""
        d, m = self.hidden_size, self.mlp_dim
        return (1 + self.gated_mlp) * (d + 1) * m + (m + 1) * d

    @property
    def has_class_token(self) -> bool:
        """Whether a class token stands before the patches."""
        return self.classifier in ("token", "token+gap") if self.class_token is None else self.class_token

    @property
    def prefix_tokens(self) -> int:
        """The number of tokens before the patches: the class token and the registers."""
        return self.has_class_token + self.num_registers

    @property
    def features(self) -> int:
        """The width of the vector that the classifier reads."""
        return self.hidden_size * (2 if self.classifier == "token+gap" else 1)

    @property
    def reads_class_token_alone(self) -> bool:
        """Whether the last block computes the class token alone (Eq. 4), unless relative positions must learn."""
        return self.classifier == "token" and self.position_embedding != "relative"

    @property
    def pixels_per_token(self) -> tuple[int, int]:
        """(height, width) in pixels of the image area behind one token."""
        stride = self.backbone.stride if self.backbone else 1
        return self.patch_size[0] * stride, self.patch_size[1] * stride

    @property
    def size_step(self) -> int:
        """Height and width of images are multiples of so many pixels."""
        return max(self.pixels_per_token)

    @property
    def has_free_size(self) -> bool:
        """Whether the model takes images of any size."""
        return self.image_size == (None, None)

    @property
    def own_size(self) -> tuple[int, int]:
        """The image size; for images of any size, that of the position embeddings."""
        size: Any = self.stored_size or self.image_size  # pairs of ints, either
        return size

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patch tokens; for images of any size, of those that have position embeddings."""
        return self.grid_of(self.own_size)

    def grid_of(self, image_size: tuple[int, int]) -> tuple[int, int]:
        """Rows and columns of the whole patches of an image of the given size."""
        (height, width), (rows, columns) = image_size, self.pixels_per_token
        return height // rows, width // columns

    def count_pairs(self, image_size: tuple[int, int]) -> int:
        """The number of pairs (token, token it attends to) in all blocks together, for images of the given size."""
        rows, columns = self.grid_of(image_size)
        return self.num_layers * (rows * columns + self.prefix_tokens) ** 2

    @property
    def position_layers(self) -> tuple[str, ...]:
        """Names of the layers that add position embeddings: one after the stem, or one before each block."""
        if self.position_embedding in ("none", "relative", "rope"):
            return ()
        if self.position_embedding_at == "stem":
            return ("posembed_input",)
        shared = self.position_embedding_at == "every-layer-shared"
        return tuple("posembed_shared" if shared else f"posembed_{i}" for i in range(self.num_layers))

    @property
    def relative_patches(self) -> int | None:
        """The number of patches that have relative position embeddings; None for no such embeddings."""
        return self.grid[0] * self.grid[1] if self.position_embedding == "relative" else None

    @property
    def rotary_grid(self) -> tuple[int, int] | None:
        """The grid of the patches, for rotary positions; None for no such positions."""
        return self.grid if self.position_embedding == "rope" else None


@dataclass(frozen=True, kw_only=True)
class ResNetConfig:
    """A BiT-style ResNet; fields are the arguments of `ResNet`, where they are explained."""

    image_size: Annotated[
        tuple[int, int] | None, "int or (height, width) in pixels; None or (None, None) for any size."
    ] = (224, 224)
    depths: Annotated[tuple[int, ...], "units of each stage: (3, 4, 6, 3) is R50."] = (3, 4, 6, 3)
    width_factor: Annotated[float, "multiplies every width; 1, 2, 3, 4 in the paper."] = 1
    num_classes: Annotated[
        int, "width of the logits; 0 for the features that a head would read: (n, 2048 * width_factor) of four stages."
    ] = 1000
    num_channels: Annotated[int, "of the images."] = 3
    group_norm_epsilon: Annotated[float, "added to the variance; 1e-5 in the authors' code."] = 1e-5
    kernel_variance_epsilon: Annotated[float, "of the standardized kernels, 1e-10 in the authors' code."] = 1e-10
    probabilities: Probabilities = "softmax"
    classifier: Annotated[
        MapClassifier,
        '"gap" reads the mean of the last feature map; with "patches" each of its cells has logits, resized to the '
        "image's size, (n, h, w, num_classes).",
    ] = "gap"

    in_torch: ClassVar[bool] = True  # whether timm or transformers have such models, and names for their weights
    norms_first: ClassVar[bool] = True  # BiT: a norm before each convolution and one before the head
    tensor_rows: ClassVar[tuple[Row, ...]] = BIT

    def __post_init__(self):
        set_image_size(self, None)
        set_counts(self, "num_channels")
        set_counts(self, "num_classes", least=0)
        require_fractions(self, "group_norm_epsilon", "kernel_variance_epsilon")
        set_depths(self)
        require(self.depths, "depths must name at least one stage. Received: depths=().")
        require_known_values(self)

    @property
    def stride(self) -> int:
        """Pixels per cell of the last feature map."""
        return 4 * 2 ** (len(self.depths) - 1)

    @property
    def own_size(self) -> tuple[int, int] | None:
        """The image size of the configuration; None for any."""
        return self.image_size

    @property
    def size_step(self) -> int:
        """Height and width of images are multiples of so many pixels: 1, as a ResNet takes any size."""
        return 1


class ModelFields(TypedDict, total=False):
    """The fields of configurations that `zoo.load` takes besides its own arguments, for type checkers."""

    patch_size: int | tuple[int, int]
    hidden_size: int
    num_layers: int
    mlp_dim: int
    representation_size: int | None
    classifier: Classifier
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
    activation: Activation
    gated_mlp: bool
    pre_norm: bool
    patch_bias: bool
    head_bias: bool
    qkv_bias: QkvBias
    layer_scale: float | None
    num_registers: int
    class_token: bool | None
    class_token_position: bool
    drop_remainder: bool
    norm_after_pool: bool
    unit_vectors: bool
    stored_size: tuple[int, int] | None


class ConstructorFields(ModelFields, total=False):
    """The fields of configurations that the models' constructors take, for type checkers."""

    image_size: int | tuple[int, int] | tuple[None, None] | None
    num_classes: int
    num_heads: int
    position_interpolation: PositionInterpolation


def parameters_of(config_class) -> list[inspect.Parameter]:
    """The fields of a configuration as parameters of a function."""
    hints, kind = field_types(config_class), inspect.Parameter.POSITIONAL_OR_KEYWORD
    fields = dataclasses.fields(config_class)
    return [inspect.Parameter(x.name, kind, default=x.default, annotation=hints[x.name]) for x in fields]


def describe_fields(config_class) -> str:
    """The fields' meanings, as the lines of a docstring under "Args:"."""
    hints = get_type_hints(config_class, include_extras=True)
    meanings = [f"{x.name}: {hints[x.name].__metadata__[0]}" for x in dataclasses.fields(config_class)]
    wrap = textwrap.TextWrapper(120, initial_indent=8 * " ", subsequent_indent=12 * " ", break_on_hyphens=False)
    return "\n".join(map(wrap.fill, meanings))


# Fields that a ResNet lacks, with the values that mean "none".
VIT_ALONE = {
    "dropout_rate": 0.0,
    "attention_dropout_rate": 0.0,
    "representation_size": None,
    "position_embedding": "none",
    "position_embedding_at": "stem",
    "stochastic_depth_rate": 0.0,
}


def change(config, fields):
    """`dataclasses.replace`, in which a ViT's stored_size follows from another image_size."""
    if isinstance(config, ViTConfig) and "image_size" in fields:
        fields = {"stored_size": config.own_size if is_free_size(fields["image_size"]) else None, **fields}
    return dataclasses.replace(config, **fields)


def drop_inapplicable(config, fields):
    """Leaves out the fields that a ResNet lacks if their values mean "none", such as a dropout of 0.

    Raises:
        ConfigError: when a field that a ResNet lacks has another value.
    """
    if not isinstance(config, ResNetConfig):
        return fields
    for name, none in VIT_ALONE.items():
        value = fields.get(name, none)
        require(value == none, f"A ResNet has no {name}; only ViTs and hybrids do. Received: {name}={value!r}.")
    return {name: value for name, value in fields.items() if name not in VIT_ALONE}
