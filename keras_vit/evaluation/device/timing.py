"""A timer that lets contestants take turns, and a record of measurements that survives interruptions. Other load slows
all contestants alike, so only ratios within one run mean anything.
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
LEAST_ROUNDS = 3  # even for a case that takes too long
LEAST_TURN = 0.25  # seconds; when a turn begins, the caches hold another's weights


def seconds_per_call(
    function: Callable[[], object], least: float = LEAST_TURN, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Mean seconds of a call, over as many calls as fill `least` seconds, at least one."""
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
    """Calls functions in turn, in alternating order: {name: measurement of each round}.

    Args:
        patience: seconds after which no new round begins, once there are `LEAST_ROUNDS`.
        known: {(name, round): measurement} of earlier ones; new ones are added to it.
        clock: returns the time in seconds.
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
    """Restores a key: makes tuples from JSON's lists."""
    return tuple(map(as_key, value)) if isinstance(value, list) else value


class Record(dict):
    """Measurements by key (texts, numbers, tuples): one JSON object per line, after a header that says what they are.

    Args:
        path: the file, which is made if missing; None stores nothing.
        about: what is measured, such as {"device": "..."}; an existing file must state the same.

    Raises:
        ConfigError: when the file is for other measurements, or cannot be read.
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
        """Reads the values of the file, except a last line that was cut short by an interruption."""
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
