"""Images per second over image sizes and batch sizes (Figure 12, left)."""

import functools
import os
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from keras_vit.errors import ConfigError, is_whole
from keras_vit.evaluation.device.record import Record
from keras_vit.evaluation.device.steps import StepsProcess, time_steps
from keras_vit.evaluation.device.timing import take_turns
from keras_vit.models.variants import variant


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
        if not values or not all(is_whole(value, least=1) for value in values):
            raise ConfigError(f"{name} must be at least 1, and one of them at least. Received: {list(values)}.")


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
    out, and each step is waited for. On a GPU the steps are compiled by XLA.

    Args:
        models: names of variants, with random weights.
        image_sizes: in pixels; each model takes the nearest that makes whole patches.
        batch_sizes: images of a step.
        training: measures a step of Adam (Table 3) with its backward pass, and not inference.
        rounds: measurements of each; the median counts.
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
                process.start()  # each size has the memory for itself
            cells = [
                (model, nearest_size(model, size), batch) for model in models for batch in sorted(set(batch_sizes))
            ]
            turns = {cell: functools.partial(measure, cell) for cell in cells}
            values = take_turns(turns, rounds, known=known)
            found += [Speed(*cell, () if None in values[cell] else tuple(values[cell])) for cell in turns]
    return found


def best_speeds(speeds: Iterable[Speed]) -> list[Speed]:
    """Of each model and image size the fastest batch size: the points of Figure 12, left.

    >>> best_speeds([Speed("R50x1", 224, 1, (5.0,)), Speed("R50x1", 224, 8, (9.0,)), Speed("R50x1", 224, 64, ())])
    [Speed(model='R50x1', image_size=224, batch_size=8, rounds=(9.0,))]
    """
    best: dict[tuple[str, int], Speed] = {}
    for speed in speeds:
        place = (speed.model, speed.image_size)
        known = best.get(place)
        if speed.rounds and (known is None or statistics.median(speed.rounds) > statistics.median(known.rounds)):
            best[place] = speed
    return list(best.values())
