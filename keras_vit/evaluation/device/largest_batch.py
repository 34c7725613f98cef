"""The largest batch that fits into the memory of a device (Figure 12, right)."""

import os
from collections.abc import Callable
from dataclasses import dataclass

from keras_vit.evaluation.device.record import Record
from keras_vit.evaluation.device.speed import nearest_size, require_some
from keras_vit.evaluation.device.steps import StepsProcess, warm_up

MOST_IMAGES = 2**16
PART = 16  # the search ends where the smallest batch that does not fit is less than a 16th larger


@dataclass(frozen=True)
class LargestBatch:
    """How many images of a model fit into the memory of a device.

    Args:
        model: name of the variant.
        image_size: height and width in pixels.
        batch_size: the largest batch that was run; 0 where not even one image fits.
        too_large: the smallest batch that did not fit; None where the search ended before.
    """

    model: str
    image_size: int
    batch_size: int
    too_large: int | None


def search(fits: Callable[[int], bool], most: int) -> tuple[int, int | None]:
    """(the largest number that fits, the smallest that does not or None), of numbers up to `most`.

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
    """The largest batch that fits (Appendix D.5), to within a sixteenth, found by doubling and then halving the gap.

    Each batch is run once, in a process of its own that may take `memory` bytes and no more: it is ended, and the
    machine goes on.

    Args:
        model: name of a variant.
        image_size: in pixels; the model takes the nearest that makes whole patches.
        training: a step of Adam with its backward pass, and not inference.
        precision: dtype policy.
        memory: bytes that weights, images and activations may take, beside TensorFlow itself; None for what the device
            has, on a CPU four fifths of what is free.
        most: images at which the search ends.
        record: a file that keeps what is found; a later call with it tries only what is missing.
        tell: called with a text before each trial.

    Raises:
        UnknownNameError, ConfigError, DeviceError: as `measure_speed`.

    >>> find_largest_batch("ViT-Test/4", 32, memory=3 * 10**8).batch_size  # on a CPU  # doctest: +SKIP
    608
    """
    require_some(image_sizes=[image_size], most=[most], memory=[memory or 1])
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
