"""What the benchmarks share: contestants take turns, so that whatever else the machine does slows all alike.

Only ratios within one run mean anything.
"""

import statistics
import time


def seconds(function):
    """Seconds that a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def take_turns(contestants, rounds, warm_up=1, measure=seconds):
    """{name: measurement of each round} of some functions, called in turn, in alternating order.

    Args:
        contestants: functions by name.
        warm_up: rounds before the first that counts.
        measure: what is measured of a function.
    """
    measured = {name: [] for name in contestants}
    for r in range(-warm_up, rounds):
        for name in list(contestants)[:: -1 if r % 2 else 1]:
            value = measure(contestants[name])
            if r >= 0:
                measured[name].append(value)
    return measured


def median_ratio(values, others):
    """The median over the rounds of a measurement by another's of the same round."""
    return statistics.median(a / b for a, b in zip(values, others, strict=True))
