"""Figure 12: images per second and the largest batch that fits, over image sizes, with tables and plots.

The functions that plot return a matplotlib Figure.
"""

import csv
import functools
import os
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from keras_vit.errors import COUNT, ConfigError, Range, require_within
from keras_vit.evaluation.device.measuring import Record, take_turns
from keras_vit.evaluation.device.steps import StepsProcess, time_steps, warm_up
from keras_vit.files import write_whole
from keras_vit.models.variants import variant

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_IMAGES = 2**16
BYTES = Range(1, 2**62, "positive: a whole number of bytes", whole=True)
PART = 16  # the search ends once the smallest batch that does not fit is less than a 16th larger
# Lines and markers of the families, as in the paper: ResNets dashed, hybrids dotted.
STYLES = {"ViT": "-o", "hybrid": ":s", "ResNet": "--^"}


@dataclass(frozen=True)
class Speed:
    """The speed of a model on a device.

    Args:
        model: name of the variant.
        image_size: height and width in pixels.
        batch_size: images of a step.
        rounds: images per second in each round; empty if the batch does not fit into the memory.

    >>> Speed("ViT-B/16", 224, 64, (90.0, 100.0, 98.0)).images_per_second
    98.0
    """

    model: str
    image_size: int
    batch_size: int
    rounds: tuple[float, ...]

    @property
    def images_per_second(self) -> float | None:
        """The median of the rounds; None if the batch does not fit."""
        return statistics.median(self.rounds) if self.rounds else None


def nearest_size(model: str, image_size: int) -> int:
    """The size nearest to `image_size` that is a whole number of patches: 518 instead of 512 for ViT-H/14.

    >>> nearest_size("ViT-H/14", 512), nearest_size("R50x1", 500)
    (518, 500)
    """
    step = variant(model).config.size_step
    return max(1, round(image_size / step)) * step


def require_some(**counts):
    for name, values in counts.items():
        if not values or not all(value in COUNT for value in values):
            raise ConfigError(f"{name} must be whole numbers from 1, at least one of them. Received: {list(values)}.")


def measure_speed(
    models: Sequence[str],
    image_sizes: Sequence[int] = (224,),
    batch_sizes: Sequence[int] = (1, 8, 64),
    *,
    training: bool = False,
    rounds: int = 5,
    seconds: float = 0.5,
    precision: str = "float32",
    memory: int | None = None,
    record: str | os.PathLike | None = None,
    tell: Callable[[str], None] | None = None,
) -> list[Speed]:
    """Measures images per second (Appendix D.5) on the first GPU, else on the CPU.

    Everything runs in a separate process, on images that are on the device already. The models and batch sizes of one
    image size take turns, so that other load on the machine slows all alike. Compilation is not counted, and each step
    is waited for. On a GPU, XLA compiles the steps.

    Args:
        models: names of variants, with random weights.
        image_sizes: in pixels; each model uses the nearest size of whole patches.
        batch_sizes: images of a step.
        training: whether to measure a training step with Adam (Table 3) instead of inference.
        rounds: number of measurements; the result is their median.
        seconds: least duration of a round, in whole steps.
        precision: dtype policy: "float32", "mixed_bfloat16" or "mixed_float16".
        memory: limit in bytes; None for the memory of the device, or on a CPU for four fifths of the free memory.
        record: a file that keeps the measurements; a later call with it measures only what is missing.
        tell: called with a text before each measurement.

    Raises:
        UnknownNameError: for a model that is not a variant.
        ConfigError: for numbers below 1, or for a `record` of another device or step.
        DeviceError: when a model cannot be run for a reason other than memory.

    >>> one, many = measure_speed(["ViT-Ti/16"], batch_sizes=[1, 64])  # doctest: +SKIP
    >>> one.images_per_second, many.images_per_second  # doctest: +SKIP
    True
    """
    require_some(image_sizes=image_sizes, batch_sizes=batch_sizes, rounds=[rounds])
    tell = tell or (lambda text: None)
    found = []
    with StepsProcess(memory, precision) as process:
        known = Record(record, process.describe(training))

        def measure(cell):
            model, size, batch = cell
            smaller = [(model, size, other) for other in batch_sizes if other <= batch]
            if any(known.get((other, r), 0) is None for other in smaller for r in range(rounds)):
                return None
            tell(f"{model} at {size} pixels, batches of {batch}")
            passed = process.run(time_steps, *cell, training, seconds)
            return passed and batch / passed

        for size in image_sizes:
            if process.runs:
                process.start()  # each size starts with all memory free
            cells = [
                (model, nearest_size(model, size), batch) for model in models for batch in sorted(set(batch_sizes))
            ]
            turns = {cell: functools.partial(measure, cell) for cell in cells}
            values = take_turns(turns, rounds, known=known)
            found += [Speed(*cell, () if None in values[cell] else tuple(values[cell])) for cell in turns]
    return found


def best_speeds(speeds: Iterable[Speed]) -> list[Speed]:
    """The fastest batch size for each model and image size: the points of Figure 12, left.

    >>> best_speeds([Speed("R50x1", 224, 1, (5.0,)), Speed("R50x1", 224, 8, (9.0,)), Speed("R50x1", 224, 64, ())])
    [Speed(model='R50x1', image_size=224, batch_size=8, rounds=(9.0,))]
    """
    places: dict[tuple[str, int], list[Speed]] = {}
    for speed in speeds:
        if speed.rounds:
            places.setdefault((speed.model, speed.image_size), []).append(speed)
    return [max(found, key=lambda speed: statistics.median(speed.rounds)) for found in places.values()]


@dataclass(frozen=True)
class LargestBatch:
    """The largest batch of a model that fits into the memory of a device.

    Args:
        model: name of the variant.
        image_size: height and width in pixels.
        batch_size: the largest batch that was run; 0 if not even one image fits.
        too_large: the smallest batch that did not fit; None if the search ended before.
    """

    model: str
    image_size: int
    batch_size: int
    too_large: int | None


def search(fits: Callable[[int], bool], most: int) -> tuple[int, int | None]:
    """Searches numbers up to `most`: (the largest that fits, the smallest that does not, or None).

    >>> search(lambda batch: batch <= 300, 2**16)
    (288, 304)
    """
    low, high = 0, 1
    while fits(high):
        if high == most:
            return high, None
        low, high = high, min(2 * high, most)
    while high - low > max(1, low // PART):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low, high


def find_largest_batch(
    model: str,
    image_size: int = 224,
    *,
    training: bool = False,
    precision: str = "float32",
    memory: int | None = None,
    most: int = MOST_IMAGES,
    record: str | os.PathLike | None = None,
    tell: Callable[[str], None] | None = None,
) -> LargestBatch:
    """Finds the largest batch that fits (Appendix D.5), to within a sixteenth, by doubling and then halving the gap.

    Each batch is run once, in a separate process that is killed if it takes more than `memory` bytes.

    Args:
        model: name of a variant.
        image_size: in pixels; the model uses the nearest size of whole patches.
        most: number of images at which the search ends.
        training, precision, memory, record, tell: as for `measure_speed`; the limit of memory is for weights, images
            and activations, without TensorFlow itself.

    Raises:
        UnknownNameError, ConfigError, DeviceError: as for `measure_speed`.

    >>> find_largest_batch("ViT-Test/4", 32, memory=3 * 10**8).batch_size  # on a CPU  # doctest: +SKIP
    608
    """
    require_some(image_sizes=[image_size], most=[most])
    require_within(BYTES, memory=memory or None)
    size = nearest_size(model, image_size)
    with StepsProcess(memory, precision) as process:
        known = Record(record, process.describe(training))

        def fits(batch):
            key = ("trial", model, size, batch)
            if key not in known:
                if tell:
                    tell(f"{model} at {size} pixels: does a batch of {batch:,} fit?")
                known[key] = process.run(warm_up, model, size, batch, training) is not None
            return known[key]

        return LargestBatch(model, size, *search(fits, most))


def write_rows(path, headings, rows):
    with write_whole(path) as unfinished, open(unfinished, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([headings, *rows])


def write_speeds(speeds: Iterable[Speed], path: str | os.PathLike) -> None:
    """Writes a CSV with a row for each model, image size and batch size; no speed if the batch does not fit."""
    headings = ["model", "image_size", "batch_size", "images_per_second", "slowest", "fastest", "rounds"]
    rows = []
    for speed in speeds:
        figures = [speed.images_per_second, min(speed.rounds), max(speed.rounds)] if speed.rounds else ["", "", ""]
        rows.append([speed.model, speed.image_size, speed.batch_size, *figures, len(speed.rounds)])
    write_rows(path, headings, rows)


def write_largest_batches(found: Iterable[LargestBatch], path: str | os.PathLike) -> None:
    """Writes a CSV with a row for each model and image size."""
    rows = [[row.model, row.image_size, row.batch_size, row.too_large or ""] for row in found]
    write_rows(path, ["model", "image_size", "largest_batch", "too_large"], rows)


def draw_lines(points, label, title):
    """Draws a line for each model through its points (model, image size, value), on logarithmic axes."""
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
