"""A damaged or hostile checkpoint is refused with the package's own error, in bounded memory, or loads as numbers."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from attacks import ATTACKS, acts

SUPPORT = pathlib.Path(__file__).parent.parent / "support"
MOST_MIB = 64  # that a refused file may cost: some 4 times the bytes of the largest attack


@pytest.fixture(scope="module")
def ends(tmp_path_factory):
    """What the attacks came to, all opened by one process."""
    folder = tmp_path_factory.mktemp("attacks")
    for name, make in ATTACKS.items():
        (folder / name).write_bytes(make())
    done = subprocess.run([sys.executable, SUPPORT / "attacks.py", folder], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ATTACKS)
def test_attacks(name, ends):
    end = ends["results"][name]
    assert end["how"] == "refused"
    assert end["sentence"].count(name) == 1
    assert not acts(end["sentence"])
    assert end["grown"] < MOST_MIB


def test_nothing_is_built_for_an_attack(ends):
    assert not ends["keras"]


@pytest.mark.slow
@pytest.mark.parametrize("count", [200, pytest.param(2000, marks=pytest.mark.long)])
def test_mutated_checkpoints(count, tmp_path):
    """So many of every format, two processes side by side; a crash, a hang or a foreign error fails."""
    runs = []
    for seed, endings in enumerate(((".npz", ".weights.h5"), (".safetensors", ".keras"))):
        folder = tmp_path / str(seed)
        folder.mkdir()
        command = [sys.executable, str(SUPPORT / "fuzzing.py"), str(folder), str(seed), str(count), *endings]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        # glibc reserves address space for each core otherwise, which the limit counts.
        runs.append(subprocess.Popen(command, **pipes, env={**os.environ, "MALLOC_ARENA_MAX": "2"}))
    for run in runs:
        out, err = run.communicate(timeout=1200)
        assert run.returncode == 0, err
        result = json.loads(out)
        assert set(result["outcomes"]) <= {"refused", "loaded"}, result
        assert sum(result["outcomes"].values()) == 2 * count
        assert result["outcomes"]["refused"] > count
        assert result["grown_mib"] < 300
