"""Plots the results of the other functions of this room; each function returns a matplotlib Figure."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_vit.errors import shorten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 7  # of filters
LONGEST_NAME = 20  # characters of an image's name
MOST_TILES = 8  # rows and columns of the position embeddings to draw, evenly spaced


def new_figure(size):
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained", dpi=110)  # needs no display, and pyplot keeps no reference


def empty_figure(rows, columns, size):
    """A figure and its axes (rows, columns), without ticks and frames."""
    figure = new_figure(size)
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    return figure, axes


def show(axis, image):
    """Draws an image (h, w, c) in [0, 1]; in grey unless it has three channels."""
    image = image if image.shape[-1] == 3 else image.mean(-1)
    axis.imshow(np.clip(image, 0, 1), cmap="gray", vmin=0, vmax=1)


def enlarge(values, size):
    """Enlarges a map (rows, columns) bilinearly to the size (height, width) of its image."""
    from keras import ops

    return ops.convert_to_numpy(
        ops.image.resize(values[..., None].astype("float32"), size, data_format="channels_last")
    )[..., 0]


def spread(count):
    """At most MOST_TILES evenly spaced numbers from 0 to count - 1, both included."""
    return np.unique(np.linspace(0, count - 1, min(count, MOST_TILES)).round().astype(int))


def plot_filters(filters: np.ndarray) -> "Figure":
    """Figure 7, left: filters (count, height, width, channels), each scaled to the full range of colours."""
    rows = -(-len(filters) // COLUMNS)
    figure, axes = empty_figure(rows, COLUMNS, (COLUMNS, rows + 0.4))
    figure.suptitle("Filters: principal components")
    for axis, component in zip(axes.flat, filters, strict=False):
        reach = np.abs(component).max() or 1.0
        show(axis, 0.5 + 0.5 * component / reach)
    return figure


def draw_position_similarity(figure, name, similarity):
    rows, columns = spread(similarity.shape[0]), spread(similarity.shape[1])
    axes = figure.subplots(len(rows), len(columns), squeeze=False)
    figure.suptitle(name)
    for axis, (i, j) in zip(axes.flat, ((i, j) for i in rows for j in columns), strict=True):
        axis.set_axis_off()
        tile = axis.imshow(similarity[i, j], vmin=-1, vmax=1, cmap="viridis")
    figure.colorbar(tile, ax=axes, label="cosine similarity")


def size_of_maps(rows, columns):
    """Width and height, in inches, of a panel of maps with its title and colour bar."""
    return 0.9 * len(spread(columns)) + 1.2, 0.9 * rows / columns * len(spread(rows)) + 0.6


def plot_position_similarity(similarity: np.ndarray | Mapping[str, np.ndarray]) -> "Figure":
    """Figure 7, centre: a map for each patch of its similarity to all others; (rows, columns, rows, columns).

    For several models, {name: similarity}, the maps are in a row, as in Figure 10.

    >>> similarity = keras_vit.inspection.position_similarity(keras_vit.zoo.load("ViT-Test/4", weights=None))
    >>> len(plot_position_similarity({"7 epochs": similarity, "14 epochs": similarity}).subfigs)
    2
    """
    models = similarity if isinstance(similarity, Mapping) else {"Position embedding similarity": similarity}
    sizes = [size_of_maps(*maps.shape[:2]) for maps in models.values()]
    figure = new_figure((sum(width for width, _ in sizes), max(height for _, height in sizes)))
    panels = figure.subfigures(1, len(models), squeeze=False, width_ratios=[width for width, _ in sizes])[0]
    for panel, (name, maps) in zip(panels, models.items(), strict=True):
        draw_position_similarity(panel, name, maps)
    return figure


def plot_attention_distance(distance: np.ndarray) -> "Figure":
    """Figure 7, right: a dot for each head, at its mean attention distance over its depth; (num_layers, num_heads)."""
    figure = new_figure((6, 4))
    axis = figure.subplots()
    depth = np.repeat(np.arange(len(distance)), distance.shape[1])
    axis.scatter(depth, distance.ravel(), s=14, c=np.tile(np.arange(distance.shape[1]), len(distance)), cmap="tab20")
    axis.set(xlabel="block", ylabel="mean attention distance (pixels)", title="Size of attended area")
    axis.set_ylim(0, 1.05 * distance.max() or 1)
    axis.xaxis.get_major_locator().set_params(integer=True)
    return figure


def darken(image, values):
    """An image (h, w, c) in [0, 1], dark where its map (rows, columns) is low."""
    light = (values - values.min()) / (np.ptp(values) or 1.0)
    return image * enlarge(light, image.shape[:2])[..., None]


def plot_maps(images: np.ndarray, maps: np.ndarray, title: str, names: Sequence[str] = ()) -> "Figure":
    """Figure 6: images (n, h, w, c) in [0, 1] above copies darkened where their maps (n, rows, columns) are low."""
    _, height, width, _ = images.shape
    figure, axes = empty_figure(2, len(images), (1.8 * len(images) + 0.2, 2 * 1.8 * height / width + 0.9))
    figure.suptitle(title)
    for (above, below), image, values in zip(axes.T, images, maps, strict=True):
        show(above, image)
        show(below, darken(image, values))
    for axis, name in zip(axes[0], names, strict=False):
        axis.set_title(shorten(name, LONGEST_NAME), fontsize=8, parse_math=False)
    return figure
