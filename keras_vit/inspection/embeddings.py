"""Shows what the first layer and the position embeddings have learned (section 4.5, Figures 7 and 10)."""

import numpy as np
from keras import Model, ops

from keras_vit.errors import ConfigError


def first_kernel(model):
    names = {layer.name for layer in model.layers}
    for name in ("conv_root", "root_conv", "embedding"):  # in the hybrid, the ResNet, the ViT
        if name in names:
            return model.get_layer(name).kernel
    raise ConfigError(f"filters takes a model of keras_vit. Received: a {type(model).__name__}.")


def principal_axes(rows: np.ndarray, count: int) -> np.ndarray:
    """The unit vectors (count, d) of largest variance of rows (n, d); the largest value of each is positive."""
    axes = np.linalg.svd(rows - rows.mean(0), full_matrices=False)[2][:count]
    largest = np.abs(axes).argmax(1, keepdims=True)
    return axes * np.sign(np.take_along_axis(axes, largest, 1))


def filters(model: Model, count: int = 28) -> np.ndarray:
    """Principal components of the first layer's filters, largest variance first: (count, height, width, channels).

    This layer is a ViT's patch embedding (Figure 7, left), or the first convolution of a hybrid or a ResNet. Each
    component has norm 1; its sign has no meaning.

    Args:
        count: most components; there are fewer if the layer has fewer filters, or a filter fewer values.

    >>> filters(keras_vit.zoo.load("ViT-Test/4", weights=None)).shape
    (28, 4, 4, 3)
    """
    kernel = ops.convert_to_numpy(first_kernel(model)).astype("float64")  # (height, width, channels, filters)
    rows = kernel.reshape(-1, kernel.shape[-1]).T
    if count < 1:
        raise ConfigError(f"count must be at least 1. Received: {count}.")
    return principal_axes(rows, count).reshape(-1, *kernel.shape[:-1])


def require_position_layers(model):
    """Names of the layers that add position embeddings to patches; raises a ConfigError if there are none."""
    config = getattr(model, "config", None)
    if not hasattr(config, "position_layers"):
        raise ConfigError(f"position_similarity takes a VisionTransformer. Received: a {type(model).__name__}.")
    if not config.position_layers:
        raise ConfigError(
            "position_similarity takes a model whose patches have position embeddings, 1d or 2d. Received: one with "
            f"position_embedding={config.position_embedding!r}."
        )
    return config.position_layers


def position_similarity(model: Model, block: int = 0) -> np.ndarray:
    """Cosine similarity of all pairs of patches' position embeddings (Figure 7, centre; Figure 10).

    Args:
        model: a VisionTransformer, hybrid or not; the class token's embedding is left out. 2-D embeddings are compared
            as they are added, a column's joined with a row's.
        block: the block, for a model that adds position embeddings in every layer.

    Returns:
        (rows, columns, rows, columns): at [i, j] the map of the patch in row i and column j, in [-1, 1].

    Raises:
        ConfigError: for a model that has no position embeddings of patches, or no such block.

    >>> position_similarity(keras_vit.zoo.load("ViT-Test/4", weights=None)).shape
    (8, 8, 8, 8)
    """
    names = require_position_layers(model)
    if not 0 <= block < len(names):
        raise ConfigError(f"The model adds position embeddings at {len(names)} places. Received: block={block}.")
    rows, columns = model.config.grid
    embedding = ops.convert_to_numpy(model.get_layer(names[block]).compose())[0].astype("float64")
    patches = embedding[-rows * columns :]
    unit = patches / np.maximum(np.linalg.norm(patches, axis=-1, keepdims=True), np.finfo("float64").tiny)
    return np.clip(unit @ unit.T, -1, 1).reshape(rows, columns, rows, columns)
