"""The command line, tried in this process."""

import sys
from typing import NamedTuple

import pytest

from keras_vit import cli


class Done(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def keras_vit(monkeypatch, capfd):
    """Function of arguments to what `keras-vit` does with them, in this process."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["keras-vit", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            cli.main()
        return Done(left.value.code, *capfd.readouterr())

    return run
