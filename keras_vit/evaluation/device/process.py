"""A separate Python process that calls functions for this one. If it runs out of memory, only that process ends.

Both ends of the pipe are here. Requests and answers are pickled, so functions must be importable by their names.
"""

import contextlib
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from keras_vit.errors import KerasVitError
from keras_vit.evaluation.device.measuring import is_of_memory, resident_memory

ROOT = Path(__file__).parents[3]  # of the package, for a Python that has not installed it
SERVE = "from keras_vit.evaluation.device.process import serve; serve()"
PATIENCE = 0.02  # seconds between two checks of a process's memory


class NotMeasured(Exception):
    """There is no measurement; the message says why, in a few words."""


class DoesNotFit(NotMeasured):
    """There is too little memory for the call."""


def describe_failure(error: Exception) -> str:
    """Describes an error of any library in one line, and of this package by its own message."""
    if isinstance(error, (NotMeasured, KerasVitError)):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        return f"{error.name} is not installed"
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def serve() -> None:
    """Runs in the new process: answers requests with the functions' reports, and then their results or errors."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keeps output of libraries out of the answers

    def send(*answer):
        pickle.dump(answer, answers)
        answers.flush()

    sys.path += [path for path in pickle.load(requests) if path not in sys.path]  # noqa: S301, of the parent
    with contextlib.suppress(EOFError, BrokenPipeError):  # the other process is gone
        while True:
            function, arguments, reports = pickle.load(requests)  # noqa: S301, of the parent
            options = {"report": lambda message: send("report", message)} if reports else {}
            try:
                send("result", function(*arguments, **options))
            except Exception as error:  # of any library
                send("no memory" if is_of_memory(error) else "failure", describe_failure(error))


def read_answers(file, answers):
    """Puts all answers from the pipe into the queue, and None at its end."""
    with contextlib.suppress(EOFError, pickle.UnpicklingError):
        while True:
            answers.put(pickle.load(file))  # noqa: S301, of our own process
    answers.put(None)
    file.close()


class Process:
    """A context with a new process that shares nothing with this one; leaving it ends the process.

    Args:
        quiet: whether to discard what libraries write to standard error.
    """

    def __init__(self, quiet: bool = False):
        self.quiet = quiet
        self.process: Any = None
        self.most: int | None = None  # bytes; with more memory it is killed

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error):
        self.stop()

    def start(self) -> None:
        """Starts a new process, with nothing in memory."""
        self.stop()
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if self.quiet else None,
            env={**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"},
            start_new_session=True,  # Ctrl-C reaches the parent alone, and that ends it
        )
        with contextlib.suppress(OSError):  # if memory still runs out, Linux kills this process and no other
            Path(f"/proc/{self.process.pid}/oom_score_adj").write_text("1000")
        self.answers: queue.SimpleQueue = queue.SimpleQueue()
        threading.Thread(target=read_answers, args=(self.process.stdout, self.answers), daemon=True).start()
        self.send([os.path.abspath(path) for path in sys.path])

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            with contextlib.suppress(OSError):  # it did not read a request
                self.process.stdin.close()
            self.process, self.most = None, None

    def send(self, request):
        with contextlib.suppress(OSError):  # the process has ended; its answers say so
            pickle.dump(request, self.process.stdin)
            self.process.stdin.flush()

    def wait(self, limit):
        """Waits for the next answer; kills the process if it takes too much memory or time."""
        end = time.monotonic() + limit if limit else None
        while True:
            left = None if end is None else max(end - time.monotonic(), 0)
            watched = PATIENCE if self.most else left
            with contextlib.suppress(queue.Empty):
                return self.answers.get(timeout=watched)
            if self.most and resident_memory(self.process.pid) > self.most:
                self.process.kill()
                raise DoesNotFit(f"it took more than {self.most:,} bytes")
            if end is not None and time.monotonic() >= end:
                self.process.kill()
                raise NotMeasured(f"it took longer than {limit:g} s")

    def call(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        limit: float | None = None,
        hear: Callable[[Any], object] | None = None,
    ) -> Any:
        """`function(*arguments)` in the process.

        Args:
            limit: seconds without an answer or report after which the process is killed.
            hear: receives what the function passes to its argument `report`; without `hear` it has no such argument.

        Raises:
            DoesNotFit: when its memory runs out, or it is killed because of its memory.
            NotMeasured: if the function raises, or its process ends or takes too long.
        """
        self.send((function, arguments, hear is not None))
        while True:
            answer = self.wait(limit)
            if answer is None:  # killed for its memory, or aborted by a library without memory
                code = self.process.wait()
                raise (DoesNotFit if self.most else NotMeasured)(f"its process ended with exit code {code}")
            kind, content = answer
            if kind == "result":
                return content
            if kind == "report":
                hear(content)
            else:
                raise (DoesNotFit if kind == "no memory" else NotMeasured)(content)


def run_apart(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """`Process.call` in a new process for this call alone."""
    with Process() as process:
        return process.call(function, *arguments, **options)
