"""`pytest` alone, all default tests, takes two processes where pytest-xdist is installed; `pytest -n 0` takes one."""

import gc
import os
import signal
import sys
from types import SimpleNamespace

import pytest

# Of a TensorFlow in each process: models this small are faster without waiting for one another's threads.
THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


# A shell starts what it runs in the background with Ctrl-C ignored, and every process of a test would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Of the million objects of graphs and models few are garbage: looking through them took a tenth of the time.
gc.set_threshold(100_000, 50, 100)


@pytest.hookimpl(tryfirst=True)  # before the fixtures, those of a module too
def pytest_runtest_setup(item):
    """The same random weights at every run, whatever ran before."""
    if "keras" in sys.modules:
        sys.modules["keras"].utils.set_random_seed(0)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the options
def pytest_cmdline_main(config):
    chosen = config.option
    is_worker = hasattr(config, "workerinput")  # of such a run: it must not start workers of its own
    is_all = not chosen.file_or_dir and not chosen.keyword and chosen.markexpr == "not slow and not browser"
    if is_worker or not is_all or chosen.collectonly or chosen.usepdb:
        return
    if getattr(chosen, "numprocesses", 0) is None:
        chosen.numprocesses, chosen.dist = 2, "loadfile"  # a file's models and artefacts are made once
        for name in THREADS:
            os.environ.setdefault(name, "1")


@pytest.fixture
def forked_converters(monkeypatch):
    """Exports' processes are forked from one with TensorFlow, for tests that prove nothing of how they begin."""
    import forking

    monkeypatch.setattr(forking.processes, "subprocess", SimpleNamespace(Popen=forking.Forked, PIPE=None))
