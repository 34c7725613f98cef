"""What attention costs: the pairs of tokens of any ViT, and the lines of an AxialResNet."""

from dataclasses import dataclass

from keras_vit.models.config import AxialViTConfig


@dataclass(frozen=True)
class LineAttention:
    """Position-sensitive attention along every line of a feature map; asked as a convolution is.

    Args:
        channels: of input and output.
        heads: attention heads.
        lines, length: how many lines, and places on each.
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
        """Of queries, keys and values; of three kinds of logits; of the sums of values and of positions."""
        return self.places * (2 * self.channels + 3 * self.heads * self.length + 2 * self.channels)

    def multiply_adds(self, padding):
        """`padding` changes nothing: attention has none."""
        keys, values = self.channels // 2, self.channels
        return self.places * (2 * self.channels**2 + self.length * (3 * keys + 2 * values))


def count_pairs(config, size):
    """How many pairs of a token and one that it attends to all blocks have together, for images of that size."""
    step = config.pixels_per_token
    rows, columns = size[0] // step[0], size[1] // step[1]
    patches, token = rows * columns, int(config.classifier == "token")
    if not isinstance(config, AxialViTConfig):
        return config.num_layers * (patches + token) ** 2
    # A class token attends to all, and no patch to it.
    return config.num_layers // 2 * (patches * (columns + rows) + 2 * token * (patches + 1))
