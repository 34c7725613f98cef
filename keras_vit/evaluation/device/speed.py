"""Images per second over image sizes and batch sizes (Figure 12, left)."""

import csv
import math
import os
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from keras_vit.errors import ConfigError
from keras_vit.evaluation.device.process import DeviceProcess, DoesNotFit
from keras_vit.evaluation.device.record import Record
from keras_vit.files import write_whole
from keras_vit.models.variants import variant

MOST_CALLS = 1000  # steps of one round


@dataclass(frozen=True)
class Speed:
    """How fast a device runs a model.

    Args:
        model: name of the variant.
        image_size: height and width in pixels.
        batch_size: images of a step.
        rounds: images per second of each round; empty where the batch does not fit into the memory.

    >>> Speed("ViT-B/16", 224, 64, (90.0, 100.0, 98.0)).images_per_second
    98.0
    """

    model: str
    image_size: int
    batch_size: int
    rounds: tuple[float, ...]

    @property
    def images_per_second(self) -> float | None:
        """The median of the rounds; None where the batch does not fit."""
        return statistics.median(self.rounds) if self.rounds else None


def nearest_size(model: str, image_size: int) -> int:
    """The number of pixels nearest to `image_size` that makes whole patches: 518 of 512 for ViT-H/14.

    >>> nearest_size("ViT-H/14", 512), nearest_size("R50x1", 500)
    (518, 500)
    """
    step = getattr(variant(model).config, "pixels_per_token", (1,))[0]
    return max(1, round(image_size / step)) * step


def require_some(**counts):
    for name, values in counts.items():
        if not values or any(isinstance(value, bool) or value < 1 for value in values):
            raise ConfigError(f"{name} must be at least 1, and one of them at least. Received: {list(values)}.")


def describe(process, training):
    """What measurements are of."""
    step = "training" if training else "inference"
    return {"device": process.device, "step": step, "precision": process.precision, "memory": process.memory}


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
    """How many images per second the device runs (Appendix D.5): the first GPU, else the CPU.

    Everything runs in a process of its own, on images that are on the device already. The models and batch sizes of one
    image size take turns, so that whatever else the machine does slows all alike; the time that compiling takes is left
    out. On a GPU the steps are compiled by XLA.

    Args:
        models: names of variants, with random weights.
        image_sizes: in pixels; each model takes the nearest that makes whole patches.
        batch_sizes: images of a step.
        training: measures a step of Adam (Table 3) with its backward pass, and not inference.
        rounds: measurements of each, of which the median counts.
        seconds: that a round takes at least, in whole steps.
        precision: dtype policy: "float32", "mixed_bfloat16" or "mixed_float16".
        memory: bytes that may be taken; None for what the device has, on a CPU four fifths of what is free.
        record: a file that keeps what is measured; a later call with it measures only what is missing.
        tell: called with a text before each measurement.

    Raises:
        UnknownNameError: for a model that is not a variant.
        ConfigError: for numbers below 1, and for a `record` of another device or step.
        DeviceError: when a model cannot be run for another reason than memory.

    >>> one, many = measure_speed(["ViT-Ti/16"], batch_sizes=[1, 64])  # doctest: +SKIP
    >>> one.images_per_second, many.images_per_second  # doctest: +SKIP
    True
    """
    require_some(image_sizes=image_sizes, batch_sizes=batch_sizes, rounds=[rounds])
    batches, found = sorted(set(batch_sizes)), {}
    with DeviceProcess(memory, precision) as process:
        known = Record(record, describe(process, training))
        for size in image_sizes:
            if process.runs:
                process.start()  # each size has the memory for itself
            cells = [(model, nearest_size(model, size), batch) for model in models for batch in batches]
            take_turns(process, cells, training, rounds, seconds, known, tell or (lambda text: None))
            found |= {cell: Speed(*cell, rounds_of(cell, rounds, known)) for cell in cells}
    return list(found.values())


def take_turns(process, cells, training, rounds, seconds, known, tell):
    """Measures what is missing of each cell (model, image size, batch size), all in turn, in alternating order."""
    timer = Timer(process, training, seconds)
    for r in range(rounds):
        for cell in cells[:: -1 if r % 2 else 1]:
            key = ("round", *cell, r)
            if key not in known:
                tell(f"{cell[0]} at {cell[1]} pixels, batches of {cell[2]}: round {r + 1} of {rounds}")
                known[key] = None if is_beyond(cell, r, known) else timer.measure(*cell)


def is_beyond(cell, r, known):
    """Whether a batch as large or smaller has been found not to fit, in this round or one before."""
    model, size, batch = cell
    return any(
        value is None and key[0] == "round" and key[1:3] == (model, size) and key[3] <= batch and key[4] <= r
        for key, value in known.values.items()
    )


def rounds_of(cell, rounds, known):
    values = [known[("round", *cell, r)] for r in range(rounds)]
    return () if None in values else tuple(values)


class Timer:
    """Times steps of a process, each after it has been compiled there."""

    def __init__(self, process, training, seconds):
        self.process, self.training, self.seconds = process, training, seconds
        self.calls = {}  # {cell: (the start of the process that is warm, steps of a round)}

    def measure(self, *cell):
        """Images per second of a cell; None when it does not fit."""
        for _ in range(2):
            try:
                if self.calls.get(cell, (None,))[0] != self.process.starts:
                    if not self.process.warm_up(*cell, self.training):
                        return None
                    once = self.process.time(*cell, self.training)
                    self.calls[cell] = self.process.starts, min(MOST_CALLS, math.ceil(self.seconds / once))
                calls = self.calls[cell][1]
                return cell[2] * calls / self.process.time(*cell, self.training, calls)
            except DoesNotFit:  # beside the others; then alone
                continue
        return None


def best_speeds(speeds: Iterable[Speed]) -> list[Speed]:
    """Of each model and image size the fastest batch size: the points of Figure 12, left.

    >>> best_speeds([Speed("R50x1", 224, 1, (5.0,)), Speed("R50x1", 224, 8, (9.0,)), Speed("R50x1", 224, 64, ())])
    [Speed(model='R50x1', image_size=224, batch_size=8, rounds=(9.0,))]
    """
    best = {}
    for speed in speeds:
        place = (speed.model, speed.image_size)
        if speed.rounds and (place not in best or speed.images_per_second > best[place].images_per_second):
            best[place] = speed
    return list(best.values())


def write_speeds(speeds: Iterable[Speed], path: str | os.PathLike) -> None:
    """Writes a CSV with a row for each model, image size and batch size; empty where the batch does not fit."""
    with write_whole(path) as unfinished, open(unfinished, "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["model", "image_size", "batch_size", "images_per_second", "slowest", "fastest", "rounds"])
        for speed in speeds:
            ends = (min(speed.rounds), max(speed.rounds)) if speed.rounds else ("", "")
            row = [speed.model, speed.image_size, speed.batch_size, speed.images_per_second or "", *ends]
            rows.writerow([*row, len(speed.rounds)])
