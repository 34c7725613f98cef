"""A case: its contestants take turns in a process of its own."""

import os
import pkgutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from benchmarks.subjects import SUBJECTS, Case, Contestant, Settings
from keras_vit.evaluation.device.measuring import describe_machine, name_accelerator, read_processor, take_turns
from keras_vit.evaluation.device.process import NotMeasured, describe_failure, run_apart

EVERYONE = "all"  # in place of a contestant's name, where none has begun
GRACE = 60.0  # seconds in which a new process of a contestant's turn may be ended before its case is
# Variables that the libraries read when they are imported. Two frameworks share a GPU: neither may take all its memory.
ENVIRONMENT = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


@dataclass(frozen=True)
class Outcome:
    """Of a case: {name: contestant that was measured}, {name: why another was not}, the machine in words."""

    measured: dict[str, Contestant]
    not_measured: dict[str, str]
    machine: str


def tell(text: str, end: str = "\n") -> None:
    """Writes a line of progress; to be overwritten, with the end "\\r", only to a terminal."""
    if end != "\r" or sys.stderr.isatty():
        print(f"{text:<76}" if end == "\r" else text, end=end, file=sys.stderr, flush=True)


def prepare(makers, warm_up, report):
    """The contestants, after one run each if they are to be warm, and why the others cannot take part."""
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
    os.environ.update(ENVIRONMENT, KERAS_BACKEND=case.backend)
    subject = SUBJECTS[case.subject]
    makers = pkgutil.resolve_name(subject.enter)(case, settings)
    makers = {name: make for name, make in makers.items() if name not in excluded}
    contestants, not_measured = prepare(makers, not subject.apart, report)

    def take_turn(name):
        report(name)
        return contestants[name].measure()

    rounds = min(settings.rounds, subject.rounds or settings.rounds)
    turns = {name: partial(take_turn, name) for name in contestants}
    values = take_turns(turns, rounds, settings.patience)
    # What measures stays in this process: it holds models, and cannot be sent.
    measured = {name: replace(c, measure=None, values=values[name]) for name, c in contestants.items()}
    accelerator = name_accelerator() if case.backend in sys.modules else ""
    return Outcome(measured, {**not_measured, **excluded}, describe_machine(accelerator))


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
            return Outcome({}, excluded, describe_machine())


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
