"""Where the epochs of a run end, and which of them one `fit` trains."""

from fractions import Fraction
from itertools import groupby, pairwise
from typing import NamedTuple

from keras_vit.errors import ConfigError


class Segment(NamedTuple):
    """Steps `begin` to `end` for one `fit`: `epochs` epochs of equal length, the first of which is number `epoch`."""

    begin: int
    end: int
    epoch: int
    epochs: int


def list_epoch_ends(total: int, length: int | Fraction) -> list[int]:
    """The steps at which epochs of `length` steps end, to the nearest step; the last is `total`, perhaps within one.

    Raises:
        ConfigError: when an epoch is less than one step.

    >>> list_epoch_ends(10, Fraction(9, 4))
    [2, 4, 7, 9, 10]
    """
    if length < 1:
        raise ConfigError(f"steps_per_epoch must be positive: at least one step. Received: {length}.")
    ends = [round(epoch * length) for epoch in range(1, int(total / length) + 2)]
    return [end for end in ends if end < total] + [total]


def plan_segments(start: int, ends: list[int]) -> list[Segment]:
    """The rest of an interrupted epoch, then runs of whole epochs of equal length.

    >>> [(a, b) for a, b, *_ in plan_segments(7, [10, 20, 25])]
    [(7, 10), (10, 20), (20, 25)]
    """
    begin, left, segments = start, [end for end in ends if end > start], []
    epoch = len(ends) - len(left)
    if left and start not in (0, *ends):
        segments = [Segment(start, left[0], epoch, 1)]
        begin, epoch, left = left[0], epoch + 1, left[1:]
    for length, same in groupby(end - before for before, end in pairwise([begin, *left])):
        count = len(list(same))
        segments.append(Segment(begin, begin + length * count, epoch, count))
        begin, epoch = segments[-1].end, epoch + count
    return segments
