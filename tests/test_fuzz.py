"""A damaged or hostile checkpoint is refused with the package's own error, in bounded memory, or loads as numbers."""

import json
import pathlib
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).parent / "fuzzing.py"
COUNT = 2000


@pytest.mark.slow
def test_mutated_checkpoints(tmp_path):
    """2,000 of every format, two processes side by side; a crash, a hang or a foreign error fails."""
    runs = []
    for seed, endings in enumerate(((".npz", ".weights.h5"), (".safetensors", ".keras"))):
        folder = tmp_path / str(seed)
        folder.mkdir()
        command = [sys.executable, str(PROGRAM), str(folder), str(seed), str(COUNT), *endings]
        runs.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    for run in runs:
        out, err = run.communicate(timeout=1200)
        assert run.returncode == 0, err
        result = json.loads(out)
        assert set(result["outcomes"]) <= {"refused", "loaded"}
        assert sum(result["outcomes"].values()) == 2 * COUNT
        assert result["outcomes"]["refused"] > COUNT
        assert result["grown_mib"] < 300
