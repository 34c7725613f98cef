"""The configurations of the axial models (Appendix D.6), the cost of their attention, the names of their tensors.

Imports no Keras. The names are ours: no checkpoint of axial models is public.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from keras_vit.models.config import ResNetConfig, ViTConfig, require, require_fractions, set_counts
from keras_vit.models.tensors import CONV, DENSE, NORM, ROOT, SHORTCUT, UNIT, UNIT_LAYER, VIT, Leaf, Row, conv_and_norm

BLOCK = "axialblock"
RELATIVE = (Leaf("relative_pos_emb", "relative_embedding", None),)


def line_attention(name):
    """The rows of a unit's attention along rows or columns."""
    return (
        Row(f"{UNIT}/{name}", f"{UNIT_LAYER}.{name}", RELATIVE),
        Row(f"{UNIT}/{name}/qkv", f"{UNIT_LAYER}.{name}.qkv", CONV),
        Row(f"{UNIT}/{name}/gn_qkv", f"{UNIT_LAYER}.{name}.qkv_norm", NORM),
        Row(f"{UNIT}/{name}/gn_out", f"{UNIT_LAYER}.{name}.out_norm", NORM),
    )


@dataclass(frozen=True)
class LineAttention:
    """Position-sensitive attention along every line of a feature map, with the interface of `cost.Convolution`.

    Args:
        channels: of input and output.
        heads: attention heads.
        lines, length: number of lines, and of places on each.
    """

    channels: int
    heads: int
    lines: int
    length: int

    @property
    def parameters(self):
        norms = 2 * (2 * self.channels + self.channels)
        relative = (2 * self.length - 1) * 2 * (self.channels // self.heads)
        return 2 * self.channels**2 + norms + relative

    @property
    def places(self):
        return self.lines * self.length

    @property
    def values(self):
        """The number of queries, keys and values, three kinds of logits, and sums of values and of positions."""
        return self.places * (2 * self.channels + 3 * self.heads * self.length + 2 * self.channels)

    def multiply_adds(self, padding):
        """Multiply-adds for one image; `padding` has no effect, since attention pads nothing."""
        keys, values = self.channels // 2, self.channels
        return self.places * (2 * self.channels**2 + self.length * (3 * keys + 2 * values))


@dataclass(frozen=True, kw_only=True)
class AxialViTConfig(ViTConfig):
    """An Axial-ViT (Appendix D.6); fields are the arguments of `AxialVisionTransformer`, where they are explained."""

    in_torch: ClassVar[bool] = False
    block_name: ClassVar[str] = BLOCK
    tensor_rows: ClassVar[tuple[Row, ...]] = tuple(
        row._replace(name=row.name.replace("encoderblock", BLOCK)) for row in VIT
    )

    def __post_init__(self):
        super().__post_init__()
        require(not self.has_free_size, "Axial models need image_size=(height, width): attention runs along its lines.")
        require(
            self.num_layers % 2 == 0,
            "num_layers of an Axial-ViT must be even: a row block and a column block replace each block of ViT. "
            f"Received: num_layers={self.num_layers}.",
        )
        require(
            self.position_embedding not in ("relative", "rope") and not self.num_registers,
            "An Axial-ViT has position_embedding 'none', '1d', '2d' or 'sincos2d' and no registers: attention runs "
            f"along lines of patches. Received: {self.position_embedding!r} and num_registers={self.num_registers}.",
        )

    def count_pairs(self, image_size: tuple[int, int]) -> int:
        rows, columns = self.grid_of(image_size)
        patches, token = rows * columns, int(self.has_class_token)
        # A class token attends to all tokens, and no patch attends to it.
        return self.num_layers // 2 * (patches * (columns + rows) + 2 * token * (patches + 1))


@dataclass(frozen=True, kw_only=True)
class AxialResNetConfig(ResNetConfig):
    """An AxialResNet (Appendix D.6); fields are the arguments of `AxialResNet`, where they are explained."""

    image_size: Annotated[
        tuple[int, int] | None,
        "int or (height, width) in pixels, multiples of the stride (32 for four stages): attention spans whole rows "
        "and columns, so its relative positions are for one size; `zoo.load` resizes them.",
    ] = (224, 224)
    group_norm_epsilon: Annotated[float, "1e-4 in the authors' code."] = 1e-4
    kernel_variance_epsilon: Annotated[float, "of the standardized kernels, see `StandardizedConv2D`."] = 0.0
    kernel_std_epsilon: Annotated[float, "of the standardized kernels, see `StandardizedConv2D`."] = 1e-5
    num_heads: Annotated[int, "attention heads of every unit, 8 in the authors' code."] = 8

    in_torch: ClassVar[bool] = False
    norms_first: ClassVar[bool] = False
    tensor_rows: ClassVar[tuple[Row, ...]] = (
        *ROOT,
        *conv_and_norm(1),
        *conv_and_norm(3),
        *line_attention("row_attention"),
        *line_attention("column_attention"),
        *SHORTCUT,
        Row("head", "head", DENSE),
    )

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
    def size_step(self) -> int:
        return self.stride

    def attention_cost(self, width: int, size: tuple[int, int]) -> list[LineAttention]:
        """Row and column attention, for `models.cost`: a unit has them in place of its 3x3 convolution."""
        return [LineAttention(width, self.num_heads, *lines) for lines in (size, size[::-1])]
