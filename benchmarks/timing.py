"""The heart: contestants take turns, so that whatever else the machine does slows all alike.

Only ratios within one run mean anything.
"""

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

LEAST_ROUNDS = 3  # of a case that takes longer than it may
LEAST_TURN = 0.25  # seconds; another's weights are in the caches when a turn begins


def seconds(function: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def seconds_per_call(function: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds that a call takes, on average of as many as fill `LEAST_TURN`."""
    start, calls, passed = clock(), 0, 0.0
    while passed < LEAST_TURN:
        function()
        calls, passed = calls + 1, clock() - start
    return passed / calls


@dataclass(frozen=True)
class Contestant:
    """What takes part in a case.

    Args:
        measure: does it, and returns the seconds or bytes that it took, once.
        work: what that does, in operations, images or simply times.
        over: names of the contestants by whose rate, work / measure, its own is divided.
        unit: "s" or "bytes".
    """

    measure: Callable[[], float]
    work: float = 1.0
    over: tuple[str, ...] = ()
    unit: str = "s"


def take_turns(
    contestants: Mapping[str, Callable[[], float]],
    rounds: int,
    patience: float = float("inf"),
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, list[float]]:
    """{name: measurement of each round} of some functions, called in turn, in alternating order.

    Args:
        patience: seconds after which no round begins, once there are `LEAST_ROUNDS`.
        clock: tells the seconds.
    """
    measured: dict[str, list[float]] = {name: [] for name in contestants}
    start = clock()
    for r in range(rounds):
        if r >= LEAST_ROUNDS and clock() - start > patience:
            break
        for name in list(contestants)[:: -1 if r % 2 else 1]:
            measured[name].append(contestants[name]())
    return measured


def median_ratio(values: Iterable[float], others: Iterable[float]) -> float:
    """The median over the rounds of a measurement by another's of the same round."""
    return statistics.median(a / b for a, b in zip(values, others, strict=True))
