"""Measures time and memory on this machine, and keeps the measurements in a record that survives interruptions.

Contestants take turns: other load slows all of them alike, so only ratios within one run mean anything.
"""

import contextlib
import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Hashable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import psutil

from keras_vit.errors import ConfigError
from keras_vit.files import local_path, write_whole

LEAST_ROUNDS = 3  # even for a case that takes too long
LEAST_TURN = 0.25  # seconds; when a turn begins, the caches hold another's weights


def read_processor():
    """The text of /proc/cpuinfo, or "" if there is none."""
    path = Path("/proc/cpuinfo")
    return path.read_text() if path.exists() else ""


def count_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def name_accelerator() -> str:
    """The name of the GPU or TPU that Keras' backend uses; "" for the processor."""
    import keras

    if keras.backend.backend() == "jax":
        import jax

        device = jax.devices()[0]
        return "" if device.platform == "cpu" else device.device_kind
    import tensorflow as tf

    found = [device for kind in ("TPU", "GPU") for device in tf.config.list_physical_devices(kind)]
    if not found:
        return ""
    details = tf.config.experimental.get_device_details(found[0]) if found[0].device_type == "GPU" else {}
    return details.get("device_name", found[0].device_type)


def describe_machine(accelerator: str = "") -> str:
    """Describes the processor and its cores, and the accelerator if there is one."""
    named = re.search(r"^model name\s*: (.*)$", read_processor(), re.M)
    processor = named[1] if named else platform.processor() or platform.machine()
    return ", ".join(filter(None, (processor, f"{count_cores()} cores", accelerator)))


def free_memory() -> int:
    """Bytes that a new process on this machine can use: free memory, within the limit of its control group."""
    free = psutil.virtual_memory().available
    with contextlib.suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        free = min(free, int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    return max(free, 0)


def resident_memory(pid: int) -> int:
    """Bytes that a process has in memory; 0 once it has ended."""
    try:
        return psutil.Process(pid).memory_info().rss
    except psutil.Error:
        return 0


def read_status(field):
    """Bytes of a field of /proc/self/status."""
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(field))


def peak_memory() -> int:
    """The most bytes that this process has had in memory; unlike getrusage's, not those of its parent."""
    if sys.platform == "linux":
        return read_status("VmHWM:")
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


def limit_memory(most: int) -> None:
    """Makes this process's allocations on the processor fail once it has `most` bytes more than now."""
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (read_status("VmData:") + most, resource.RLIM_INFINITY))


def is_of_memory(error: Exception) -> bool:
    """Whether an error of Python's or TensorFlow's means that memory ran out."""
    if isinstance(error, MemoryError):
        return True
    kinds = ("AbortedError", "InternalError", "UnknownError")
    names = {kind.__name__ for kind in type(error).__mro__}
    words = str(error).lower()
    return "ResourceExhaustedError" in names or bool(names.intersection(kinds) and re.search("memory|alloc", words))


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
        path: the file, written whole with each measurement; None stores nothing.
        about: what is measured, such as {"device": "..."}; an existing file must state the same.
    """

    def __init__(self, path: str | os.PathLike | None, about: dict):
        super().__init__()
        self.path, self.about = local_path(path) if path else None, about
        if self.path and self.path.exists():
            self.read(self.path)

    def read(self, path):
        try:
            first, *lines = map(json.loads, path.read_text("utf-8").splitlines())
            first = dict(first)
            self.update({as_key(key): value for key, value in lines})
        except (ValueError, TypeError) as error:
            raise ConfigError(
                f"{self.path} does not hold measurements. Remove it, or choose another folder."
            ) from error
        for name, value in self.about.items():
            if first.get(name) != value:
                raise ConfigError(
                    f"{self.path} was measured with {name}={first.get(name)!r}. Received: {name}={value!r}. "
                    "Choose another folder, or remove that file."
                )

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        if self.path:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with write_whole(self.path) as unfinished:
                lines = (self.about, *self.items())
                unfinished.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
