"""Figure 12: its points as tables, and its two plots; the functions that plot return a matplotlib Figure."""

import csv
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from keras_vit.evaluation.device.largest_batch import LargestBatch
from keras_vit.evaluation.device.speed import Speed, best_speeds
from keras_vit.files import write_whole
from keras_vit.models.variants import variant

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Families apart by line and marker, as in the paper: ResNets dashed, hybrids dotted.
STYLES = {"ViT": "-o", "hybrid": ":s", "ResNet": "--^"}


def write_rows(path, headings, rows):
    with write_whole(path) as unfinished, open(unfinished, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([headings, *rows])


def write_speeds(speeds: Iterable[Speed], path: str | os.PathLike) -> None:
    """Writes a CSV with a row for each model, image size and batch size; empty where the batch does not fit."""
    headings = ["model", "image_size", "batch_size", "images_per_second", "slowest", "fastest", "rounds"]
    rows = []
    for speed in speeds:
        ends = (min(speed.rounds), max(speed.rounds)) if speed.rounds else ("", "")
        own = [speed.model, speed.image_size, speed.batch_size, speed.images_per_second or ""]
        rows.append([*own, *ends, len(speed.rounds)])
    write_rows(path, headings, rows)


def write_largest_batches(found: Iterable[LargestBatch], path: str | os.PathLike) -> None:
    """Writes a CSV with a row for each model and image size."""
    rows = [[row.model, row.image_size, row.batch_size, row.too_large or ""] for row in found]
    write_rows(path, ["model", "image_size", "largest_batch", "too_large"], rows)


def draw_lines(points, label, title):
    """A line for each model through its points (model, image size, value), on logarithmic axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.5, 4.5), layout="constrained", dpi=110)
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
