"""The two plots of Figure 12; each function returns a matplotlib Figure."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from keras_vit.evaluation.device.largest_batch import LargestBatch
from keras_vit.evaluation.device.speed import Speed, best_speeds
from keras_vit.models.variants import variant

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Families apart by line and marker, as in the paper: ResNets dashed, hybrids dotted.
STYLES = {"ViT": "-o", "hybrid": ":s", "ResNet": "--^"}


def draw_lines(points, label, title):
    """A line for each model through its points (model, image size, value), on logarithmic axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.5, 4.5), layout="constrained", dpi=110)
    FigureCanvasAgg(figure)
    axis, sizes = figure.subplots(), sorted({size for _, size, _ in points})
    for model in dict.fromkeys(model for model, _, _ in points):
        line = sorted((size, value) for name, size, value in points if name == model)
        axis.plot(*zip(*line, strict=True), STYLES[variant(model).family], label=model, markersize=5)
    axis.set(xscale="log", yscale="log", xlabel="image size (pixels)", ylabel=label, title=title)
    axis.set_xticks(sizes, [str(size) for size in sizes], rotation=45)
    axis.minorticks_off()
    axis.grid(alpha=0.3)
    if points:
        axis.legend(fontsize=8)
    return figure


def plot_speed(speeds: Iterable[Speed]) -> "Figure":
    """Figure 12, left: images per second at the best batch size, over image sizes."""
    points = [(speed.model, speed.image_size, speed.images_per_second) for speed in best_speeds(speeds)]
    return draw_lines(points, "images per second", "Speed at the best batch size")


def plot_largest_batch(found: Iterable[LargestBatch]) -> "Figure":
    """Figure 12, right: the largest batch that fits, over image sizes."""
    points = [(row.model, row.image_size, row.batch_size) for row in found if row.batch_size]
    return draw_lines(points, "images", "Largest batch that fits")
