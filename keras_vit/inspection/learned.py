"""Shows what layers have learned and give: filters, position embeddings (Figures 7, 10), features, class activation."""

from collections.abc import Sequence

import numpy as np
from keras import Model, ops

from keras_vit.errors import ConfigError
from keras_vit.inspection.attention_maps import as_inputs, require_transformer
from keras_vit.models.vectors import unit_vectors, values_of


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
    names = getattr(getattr(model, "config", None), "position_layers", None)
    if names is None:
        raise ConfigError(f"position_similarity takes a VisionTransformer. Received: a {type(model).__name__}.")
    if not names:
        raise ConfigError(
            "position_similarity takes a model whose patches have position embeddings, 1d or 2d. Received: one with "
            f"position_embedding={model.config.position_embedding!r}."
        )
    if not 0 <= block < len(names):
        raise ConfigError(f"The model adds position embeddings at {len(names)} places. Received: block={block}.")
    rows, columns = model.config.grid
    embedding = ops.convert_to_numpy(model.get_layer(names[block]).compose())[0].astype("float64")
    patches = embedding[-rows * columns :]
    unit = unit_vectors(patches)
    return np.clip(unit @ unit.T, -1, 1).reshape(rows, columns, rows, columns)


def features(
    model: Model, images: np.ndarray, layers: int | Sequence[int] | None = None, as_grid: bool = False
) -> np.ndarray:
    """The outputs of encoder blocks for each patch, without the class token.

    Args:
        model: a VisionTransformer, hybrid or not.
        images: (n, h, w, channels), as the model takes them.
        layers: numbers of blocks from 0, negative ones from the end; None for all.
        as_grid: whether to arrange patches in rows and columns, as in the image.

    Returns:
        (len(layers), n, patches, hidden_size), or (len(layers), n, rows, columns, hidden_size) with `as_grid`; without
        the first axis when `layers` is one number.

    Raises:
        ConfigError: for a ResNet, or a block that the model does not have.

    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None)
    >>> features(model, np.zeros((2, 32, 32, 3)), layers=(1, -1), as_grid=True).shape
    (2, 2, 8, 8, 64)
    """
    require_transformer(model, "features")
    depth = model.config.num_layers
    asked = range(depth) if layers is None else np.atleast_1d(layers).tolist()
    if not asked or not all(isinstance(i, int) and -depth <= i < depth for i in asked):
        raise ConfigError(f"layers must be numbers of blocks from {-depth} to {depth - 1}. Received: {layers}.")
    outputs = [model.get_layer(f"encoderblock_{i % depth}").output for i in asked]
    rows, columns = model.config.grid_of(np.shape(images)[1:3])
    found = np.stack(values_of(model, outputs, as_inputs(model, images)))[:, :, -rows * columns :]
    if as_grid:
        found = found.reshape(*found.shape[:2], rows, columns, -1)
    return found[0] if layers is not None and np.asarray(layers).ndim == 0 else found


def feature_colours(grids: np.ndarray) -> np.ndarray:
    """The first three principal components of dense features as red, green and blue: (n, rows, columns, 3) in [0, 1].

    The components are those of all patches of all images together, so similar patches of different images look alike.

    Args:
        grids: (n, rows, columns, d), from `features(..., layers=-1, as_grid=True)`.

    >>> feature_colours(np.random.default_rng(0).normal(size=(2, 4, 4, 8))).shape
    (2, 4, 4, 3)
    """
    grids = np.asarray(grids)
    if grids.ndim != 4 or grids.shape[-1] < 3:
        raise ConfigError(f"grids must be (n, rows, columns, d) with d at least 3. Received: shape {grids.shape}.")
    rows = grids.reshape(-1, grids.shape[-1]).astype("float64")
    axes = principal_axes(rows, 3)  # fewer for fewer patches
    values = (rows - rows.mean(0)) @ np.pad(axes, ((0, 3 - len(axes)), (0, 0))).T
    low, high = np.percentile(values, (1, 99), axis=0)  # a few outliers must not darken the rest
    colours = (values - low) / np.maximum(high - low, np.finfo("float64").tiny)
    return np.clip(colours, 0, 1).reshape(*grids.shape[:-1], 3)


def class_activation(model: Model, images: np.ndarray, classes: int | Sequence[int] | None = None) -> np.ndarray:
    """Class activation of a ResNet (arXiv 1512.04150): each cell's share of the class's logit, (n, rows, columns).

    The head reads the mean over the cells, so the mean of a map plus the head's bias is the logit.

    Args:
        model: a ResNet with a head.
        images: (n, h, w, channels), as the model takes them.
        classes: a class number, or one for each image; None for each image's most likely class.

    Raises:
        ConfigError: for a VisionTransformer (see `rollout`), a model without a head, or a class it does not have.

    >>> model = keras_vit.models.ResNet(image_size=(64, 64), depths=(1, 1), num_classes=5)
    >>> class_activation(model, np.zeros((2, 64, 64, 3))).shape
    (2, 8, 8)
    """
    pools = [layer for layer in model.layers if layer.name == "pool" and len(layer.input.shape) == 4]
    if not pools or not model.config.num_classes:
        raise ConfigError("class_activation takes a ResNet with a head. For a VisionTransformer there is rollout.")
    cells, logits = values_of(model, [pools[0].input, model.outputs[0]], as_inputs(model, images))
    asked = logits.argmax(-1) if classes is None else np.broadcast_to(classes, len(logits))
    if not ((0 <= asked) & (asked < logits.shape[-1])).all():
        raise ConfigError(f"classes must be numbers from 0 to {logits.shape[-1] - 1}. Received: {classes}.")
    kernel = ops.convert_to_numpy(model.get_layer("head").kernel)[:, asked]  # (channels, n)
    return np.einsum("nrcd,dn->nrc", cells, kernel)
