"""Commands in processes of their own, to be killed: `forked_commands`."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time


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
