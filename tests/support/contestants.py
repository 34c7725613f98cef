"""Invented contestants of benchmarks/, in a module that new processes can import."""

import itertools
import os
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # as `python -m benchmarks` has it

from benchmarks.cases import measure_case  # noqa: E402
from benchmarks.subjects import SUBJECTS, Case, Contestant, Subject  # noqa: E402

INVENTED = Case("invented")


def fail():
    raise OSError("no such file\nand more")


def fail_to_import():
    raise ModuleNotFoundError("No module named 'timm'", name="timm")


def make_failing_later():
    turns = itertools.count()
    return Contestant(lambda: 1.0 if next(turns) < 2 else fail())


MAKERS = {
    "good": lambda: Contestant(lambda: 1.0, over=("good",)),
    "absent": fail_to_import,
    "failing": lambda: Contestant(fail),
    "failing later": make_failing_later,
    "ending": lambda: Contestant(lambda: os._exit(3)),
    "endless": lambda: Contestant(lambda: time.sleep(1000)),
}


def enter(case, settings):
    """Those that the settings name as peers, and the one that works."""
    return {name: make for name, make in MAKERS.items() if name == "good" or name in settings.peers}


def measure_invented(*arguments, **options):
    """`measure_case` of INVENTED."""
    SUBJECTS["invented"] = Subject("", "contestants:enter")
    return measure_case(*arguments, **options)
