"""The timer: contestants take turns, so that whatever else the machine does slows all alike.

Only ratios within one run mean anything.
"""

import time
from collections.abc import Callable, Hashable, Mapping, MutableMapping
from typing import Any

LEAST_ROUNDS = 3  # of a case that takes longer than it may
LEAST_TURN = 0.25  # seconds; another's weights are in the caches when a turn begins


def seconds_per_call(
    function: Callable[[], object], least: float = LEAST_TURN, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Seconds that a call takes, on average of as many as fill `least` seconds, and of one at least."""
    start, calls = clock(), 0
    while True:
        function()
        calls += 1
        passed = clock() - start
        if passed >= least:
            return passed / calls


def take_turns(
    contestants: Mapping[Any, Callable[[], Any]],
    rounds: int,
    patience: float = float("inf"),
    known: MutableMapping[Hashable, Any] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> dict[Any, list]:
    """{name: measurement of each round} of some functions, called in turn, in alternating order.

    Args:
        patience: seconds after which no round begins, once there are `LEAST_ROUNDS`.
        known: {(name, round): measurement} of those already made, which takes the others as they are made.
        clock: tells the seconds.
    """
    measured: dict[Any, list] = {name: [] for name in contestants}
    known, start = {} if known is None else known, clock()
    for r in range(rounds):
        if r >= LEAST_ROUNDS and clock() - start > patience:
            break
        for name in list(contestants)[:: -1 if r % 2 else 1]:
            if (name, r) not in known:
                known[name, r] = contestants[name]()
            measured[name].append(known[name, r])
    return measured
