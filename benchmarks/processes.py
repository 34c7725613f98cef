"""Cases in processes of their own, what their environment is, and how much memory they took."""

import importlib
import multiprocessing
import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.subjects import SUBJECTS, Case, Settings
from benchmarks.timing import take_turns

EVERYONE = "all"  # in place of a contestant's name, where none has begun
GRACE = 60.0  # seconds in which a new process of a contestant's turn may be ended before its case is


@dataclass(frozen=True)
class Measured:
    """What was measured of a contestant; all but `values` as in Contestant."""

    values: list[float]
    work: float
    over: tuple[str, ...]
    unit: str


@dataclass(frozen=True)
class Outcome:
    """Of a case: {name of a contestant: what was measured}, {name: why another was not}, the machine in words."""

    measured: dict[str, Measured]
    not_measured: dict[str, str]
    machine: str


class NotMeasured(Exception):
    """Why there is no measurement, in a few words."""


def describe_failure(error: Exception) -> str:
    """An error of any library in a line."""
    if isinstance(error, NotMeasured):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        return f"{error.name} is not installed"
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def answer(connection, function, arguments, reports):
    """In the new process: sends what the function reports and returns, or why it does not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C, which all processes get, ends it at once
    options = {"report": lambda message: connection.send(("report", message))} if reports else {}
    try:
        last = "result", function(*arguments, **options)
    except Exception as error:  # of any library
        last = "failure", describe_failure(error)
    connection.send(last)


def run_apart(
    function: Callable[..., Any],
    *arguments: Any,
    limit: float | None = None,
    hear: Callable[[Any], object] | None = None,
) -> Any:
    """`function(*arguments)` in a new process that shares nothing with this one.

    Args:
        limit: seconds without a word after which the process is ended.
        hear: receives what the function gives to its argument `report`, which it has only then.

    Raises:
        NotMeasured: if the function raises, or its process ends or takes too long.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=answer, args=(there, function, arguments, hear is not None))
    process.start()
    there.close()
    try:
        while True:
            if not here.poll(limit):
                raise NotMeasured(f"it took longer than {limit:g} s")
            kind, content = here.recv()
            if kind == "result":
                return content
            if kind == "failure":
                raise NotMeasured(content)
            hear(content)
    except EOFError:
        process.join()
        raise NotMeasured(f"its process ended with exit code {process.exitcode}") from None
    finally:
        process.kill()
        process.join()


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


def import_function(place):
    """The function of "module:function"."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def prepare(makers, warm_up, report):
    """The contestants, each of which has run once if it is to be warm, and why the others cannot take part."""
    contestants, not_measured = {}, {}
    for name, make in makers.items():
        report(name)
        try:
            contestant = make()
            if warm_up:
                contestant.measure()
            contestants[name] = contestant
        except Exception as error:  # of any library: the others go on
            not_measured[name] = describe_failure(error)
    return contestants, not_measured


def measure_case(
    case: Case, settings: Settings, excluded: Mapping[str, str], report: Callable[[str], object]
) -> Outcome:
    """Lets the contestants of a case take turns, in this process.

    Args:
        excluded: {name of a contestant that does not take part: why}.
        report: receives the name of the contestant whose turn is next.
    """
    os.environ.update(make_environment(case.backend, settings.threads))
    subject = SUBJECTS[case.subject]
    makers = import_function(subject.enter)(case, settings)
    makers = {name: make for name, make in makers.items() if name not in excluded}
    contestants, not_measured = prepare(makers, not subject.apart, report)

    def take_turn(name):
        report(name)
        return contestants[name].measure()

    rounds = min(settings.rounds, subject.rounds or settings.rounds)
    turns = {name: partial(take_turn, name) for name in contestants}
    values = take_turns(turns, rounds, settings.patience)
    measured = {name: Measured(values[name], c.work, c.over, c.unit) for name, c in contestants.items()}
    return Outcome(measured, {**not_measured, **excluded}, describe_machine(case.backend))


def measure_apart(case: Case, settings: Settings) -> Outcome:
    """`measure_case` in a process of its own.

    A contestant that ends this process, or takes longer than it may, is excluded, and the others begin anew.
    """
    settings = replace(settings, files=settings.files.absolute())
    excluded: dict[str, str] = {}
    while True:
        turns = [EVERYONE]

        def hear(name, turns=turns):
            tell(f"  {name}", end="\r")
            turns.append(name)

        try:
            return run_apart(measure_case, case, settings, excluded, limit=settings.limit + GRACE, hear=hear)
        except NotMeasured as error:
            excluded[turns[-1]] = str(error)
        if EVERYONE in excluded:
            return Outcome({}, excluded, describe_machine(""))


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
