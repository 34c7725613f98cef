"""Cases in processes of their own, what their environment is, and how much memory they took."""

import importlib
import multiprocessing
import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.subjects import SUBJECTS, Case, Settings
from benchmarks.timing import Contestant, take_turns


@dataclass(frozen=True)
class Measured:
    """What was measured of a contestant; all but `values` as in Contestant."""

    values: list[float]
    work: float
    over: tuple[str, ...]
    unit: str


@dataclass(frozen=True)
class Outcome:
    """Of a case: {name of a contestant: what was measured}, {name: why it was left out}, the machine in words."""

    measured: dict[str, Measured]
    left_out: dict[str, str]
    machine: str


def run_apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """`function(*arguments)` in a new process that shares nothing with this one."""
    context, on_interrupt = multiprocessing.get_context("spawn"), (signal.SIGINT, signal.SIG_DFL)
    # Ctrl-C, which all processes get, ends it at once: this one would wait for it for ever if it caught that.
    with ProcessPoolExecutor(1, context, signal.signal, on_interrupt) as pool:
        return pool.submit(function, *arguments).result()


def make_environment(backend: str, threads: int | None) -> dict[str, str]:
    """The variables that the libraries read when they are imported."""
    environment = {
        "KERAS_BACKEND": backend,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        # Two frameworks share a GPU: neither may take the whole of its memory.
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    if threads:
        environment |= {name: str(threads) for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS")}
    return environment


def tell(text: str, end: str = "\n") -> None:
    """Writes a line of progress; one that is to be overwritten, of end "\\r", only to a terminal."""
    if end != "\r" or sys.stderr.isatty():
        print(f"{text:<76}" if end == "\r" else text, end=end, file=sys.stderr, flush=True)


def find(place):
    """The function of "module:function"."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def prepare(makers: dict[str, Callable[[], Contestant]]) -> tuple[dict[str, Contestant], dict[str, str]]:
    """The contestants, each of which has run once, and why the others cannot take part."""
    contestants, left_out = {}, {}
    for name, make in makers.items():
        tell(f"  preparing {name}", end="\r")
        try:
            contestant = make()
            contestant.measure()
            contestants[name] = contestant
        except Exception as error:  # of any library: the others go on
            left_out[name] = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    return contestants, left_out


def measure_case(case: Case, settings: Settings) -> Outcome:
    """Lets the contestants of a case take turns, in this process."""
    os.environ.update(make_environment(case.backend, settings.threads))
    subject = SUBJECTS[case.subject]
    contestants, left_out = prepare(find(subject.enter)(case, settings))
    rounds = min(settings.rounds, subject.rounds or settings.rounds)
    tell(f"  {rounds} rounds of {', '.join(contestants)}", end="\r")
    functions = {name: contestant.measure for name, contestant in contestants.items()}
    values = take_turns(functions, rounds, warm_up=0 if subject.rounds else 1, patience=settings.patience)
    measured = {name: Measured(values[name], c.work, c.over, c.unit) for name, c in contestants.items()}
    return Outcome(measured, left_out, describe_machine(case.backend))


def measure_apart(case: Case, settings: Settings) -> Outcome:
    """`measure_case` in a process of its own; if that ends, all contestants are left out."""
    try:
        return run_apart(measure_case, case, replace(settings, files=settings.files.absolute()))
    except Exception as error:
        return Outcome({}, {"all": f"{type(error).__name__}: {error}"}, describe_machine(""))


def read_processor():
    """/proc/cpuinfo, or nothing where there is none."""
    path = Path("/proc/cpuinfo")
    return path.read_text() if path.exists() else ""


def count_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe_machine(backend: str) -> str:
    """Processor and cores, and the GPU if the framework of `backend`, where it has been imported, found one."""
    named = re.search(r"^model name\s*: (.*)$", read_processor(), re.M)
    machine = f"{named[1] if named else platform.processor() or platform.machine()}, {count_cores()} cores"
    if backend and backend in sys.modules:
        from benchmarks.keras_models import device_name

        machine += f", {device_name()}" if device_name() else ""
    return machine


def find_mixed_precision() -> str:
    """The dtype policy of mixed precision that the device computes faster than float32; "" if it has none.

    A GPU has bfloat16 from compute capability 8.0 on and float16 from 7.0 on, a processor says so among its flags.
    """
    try:
        query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
        found = subprocess.run(query, capture_output=True, text=True, check=True, timeout=20).stdout.split()
        capability = float(found[0])
    except (OSError, subprocess.SubprocessError, IndexError, ValueError):
        flags = set(read_processor().split())
        return "mixed_bfloat16" if flags & {"avx512_bf16", "amx_bf16"} else ""
    return "mixed_bfloat16" if capability >= 8 else "mixed_float16" if capability >= 7 else ""


def peak_memory() -> int:
    """The most bytes that this process has had in memory; of a parent's before it, unlike getrusage, nothing."""
    status = Path("/proc/self/status")
    if status.exists():
        return next(1024 * int(line.split()[1]) for line in status.read_text().splitlines() if line[:6] == "VmHWM:")
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS
