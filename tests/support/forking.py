"""Processes that are forked from one that has imported TensorFlow once: commands, to be killed, and converters."""

import contextlib
import functools
import json
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Connection

from keras_vit.export import processes


@contextlib.contextmanager
def forked_commands():
    """Function of a command's arguments to its exit status; with a folder and a pattern it is killed at such a file."""
    script = pathlib.Path(__file__).with_name("forked_commands.py")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with subprocess.Popen([sys.executable, script], **pipes) as server:

        def run(arguments, place=None, pattern=None):
            server.stdin.write(json.dumps([str(argument) for argument in arguments]) + "\n")
            pid = int(server.stdout.readline())
            if place is not None:
                until = time.monotonic() + 240
                while not list(place.glob(pattern)) and time.monotonic() < until:
                    time.sleep(0.01)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return int(server.stdout.readline())

        yield run
        server.stdin.close()


@functools.cache
def forkserver():
    """A context whose processes are forked so."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tensorflow", "keras", "onnxruntime"])
    return context


class Forked:
    """What `processes` uses of subprocess.Popen; not for several threads."""

    def __init__(self, command, env, stderr, **kwargs):
        (job, stdin), (stdout, told) = os.pipe(), os.pipe()
        theirs = [Connection(number) for number in (job, told, os.dup(stderr.fileno()))]
        self.process = forkserver().Process(target=do_job, args=(theirs, env))
        self.process.start()
        for connection in theirs:
            connection.close()
        self.stdin, self.stdout, self.kill = open(stdin, "w"), open(stdout), self.process.kill

    def wait(self):
        self.process.join()
        self.returncode = self.process.exitcode

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        self.stdout.close()
        self.wait()


def do_job(given, environment):
    os.environ.update(environment)
    for number, connection in enumerate(given):
        os.dup2(connection.fileno(), number)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")
    processes.do_job()
