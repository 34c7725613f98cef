"""The timer, which lets contestants take turns, and the record of its measurements, which survives interruptions. Other
load slows all contestants alike, so only ratios within one run mean anything.
"""

import json
import os
import time
from collections.abc import Callable, Hashable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from keras_vit.errors import ConfigError
from keras_vit.files import require_local

MOST_BYTES = 2**28  # of a record
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


def as_key(value):
    """A key as it was before JSON made lists of its tuples."""
    return tuple(map(as_key, value)) if isinstance(value, list) else value


class Record(dict):
    """Measurements by key (texts, numbers, tuples): one JSON object per line, after a header that says what they are.

    Args:
        path: of the file, which is made; None keeps nothing.
        about: what was measured, such as {"device": "..."}: the file must be of the same.

    Raises:
        ConfigError: when the file is of other measurements, or cannot be read.
    """

    def __init__(self, path: str | os.PathLike | None, about: dict):
        super().__init__()
        require_local(path or "")
        self.path = path and Path(path)
        if self.path and self.path.exists():
            self.read(about)
        elif self.path:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.append(about)

    def read(self, about):
        """Reads the values of the file, without a last line that an interruption cut short."""
        content = self.path.read_bytes()[:MOST_BYTES]
        whole = content[: content.rfind(b"\n") + 1]
        try:
            first, *lines = map(json.loads, whole.decode().splitlines() or ["{}"])
            self.update({as_key(key): value for key, value in lines})
        except (ValueError, TypeError) as error:
            raise ConfigError(
                f"{self.path} does not hold measurements. Remove it, or choose another folder."
            ) from error
        for name, value in about.items():
            if first.get(name) != value:
                raise ConfigError(
                    f"{self.path} was measured with {name}={first.get(name)!r}. Received: {name}={value!r}. "
                    "Choose another folder, or remove that file."
                )
        if len(whole) < len(content):
            os.truncate(self.path, len(whole))

    def append(self, line):
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        if self.path:
            self.append([key, value])
