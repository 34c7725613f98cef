"""Runs commands of `keras-vit`, each in a process of its own that is forked, so that TensorFlow is imported once.

Reads lines of JSON: the arguments of a command. Prints the process's id, and when it has ended its exit status.
"""

import json
import os
import sys

from keras_vit import cli
from keras_vit.trainers import protocol  # noqa: F401, imported before the forks


def main():
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                sys.argv = ["keras-vit", *json.loads(line)]
                os.dup2(2, 1)  # what it prints is not for whoever reads the ids
                cli.main()
            except SystemExit as leaving:
                status = leaving.code or 0
            finally:
                sys.stderr.flush()
                os._exit(status)
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
