"""A process of its own that runs models within a limit of memory: nothing it does takes the machine down."""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil

from keras_vit.errors import KerasVitError

PACKAGE = "keras_vit"
SHARE = 0.8  # of the memory that is free on a machine, which a trial may take by default
PATIENCE = 0.02  # seconds between two looks at a process's memory
LAST_LINES = 400  # characters of what a process wrote that are shown


class DeviceError(KerasVitError, RuntimeError):
    """A model could not be run on the device, for another reason than its memory."""


class DoesNotFit(Exception):
    """What was asked for takes more memory than there is."""


def free_memory() -> int:
    """Bytes that a new process on this machine can take: what is free, or what its control group leaves."""
    free = psutil.virtual_memory().available
    with contextlib.suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        free = min(free, int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    return max(free, 0)


class DeviceProcess:
    """Runs steps of models in a process of its own.

    Args:
        memory: bytes that models and images may take, beside what TensorFlow takes by itself; None for the whole of an
            accelerator, or on a CPU for four fifths of what is free.
        precision: the dtype policy of the models.

    Raises:
        DeviceError: when the process cannot start.
    """

    def __init__(self, memory: int | None = None, precision: str = "float32"):
        self.memory, self.precision, self.starts = memory, precision, 0
        self.process: Any = None

    def __enter__(self) -> "DeviceProcess":
        self.start()
        return self

    def __exit__(self, *error):
        self.stop()

    def start(self) -> None:
        """Begins anew, with nothing in memory."""
        self.stop()
        root = str(Path(str(sys.modules[PACKAGE].__file__)).parent.parent)
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", f"{PACKAGE}.evaluation.device.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"},
            start_new_session=True,  # Ctrl-C is for the parent, which then ends it
        )
        self.sacrifice()
        self.answers = queue.SimpleQueue()
        threading.Thread(target=read_lines, args=(self.process.stdout, self.answers), daemon=True).start()
        self.most, self.runs, self.starts = None, 0, self.starts + 1
        on_cpu = self.memory or int(SHARE * free_memory())
        try:
            found = self.ask({"memory": self.memory, "memory_on_cpu": on_cpu, "precision": self.precision})
        except DoesNotFit as error:
            raise DeviceError("The process that runs the models ended before it ran any.") from error
        self.device = found["device"]
        if found["on_cpu"]:
            self.most = self.resident() + on_cpu

    def sacrifice(self):
        """If the machine runs out of memory in spite of all, Linux ends this process and no other."""
        with contextlib.suppress(OSError):
            Path(f"/proc/{self.process.pid}/oom_score_adj").write_text("1000")

    def resident(self):
        try:
            return psutil.Process(self.process.pid).memory_info().rss
        except psutil.Error:
            return 0

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.process = None

    def ask(self, request: dict) -> dict:
        """The answer to a request; the process is ended if it takes too much memory meanwhile."""
        try:
            print(json.dumps(request), file=self.process.stdin, flush=True)
        except OSError as error:
            raise DoesNotFit from error
        while True:
            try:
                line = self.answers.get(timeout=PATIENCE)
                break
            except queue.Empty:
                if self.most is not None and self.resident() > self.most:
                    self.process.kill()
                    raise DoesNotFit from None
        if line is None:  # it has ended: killed for its memory, or aborted by a library that got none
            raise DoesNotFit
        answer = json.loads(line)
        if "error" in answer:
            if answer["of_memory"]:
                raise DoesNotFit
            raise DeviceError(f"The model could not be run: {answer['error'][:LAST_LINES]}")
        return answer

    def time(self, model: str, image_size: int, batch_size: int, training: bool, calls: int = 1) -> float:
        """Seconds of `calls` steps in a row; the first one of a model, a size and a batch is compiled in it.

        Raises:
            DoesNotFit: when memory runs out; nothing is in memory afterwards.
            DeviceError: when the model cannot be run for another reason.
        """
        request = {"model": model, "image_size": image_size, "batch_size": batch_size, "training": training}
        try:
            seconds = self.ask({**request, "calls": calls})["seconds"]
        except DoesNotFit:
            self.start()
            raise
        self.runs += 1
        return seconds

    def warm_up(self, model: str, image_size: int, batch_size: int, training: bool) -> bool:
        """Compiles a step and takes it once; whether it fits, with nothing else in memory if it must be so."""
        for alone in (self.runs == 0, True):
            try:
                self.time(model, image_size, batch_size, training)
                return True
            except DoesNotFit:
                if alone:
                    break
        return False


def read_lines(file, lines):
    """Hands on the lines of a pipe, and None at its end."""
    for line in file:
        lines.put(line)
    lines.put(None)
    file.close()
