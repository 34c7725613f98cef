"""Messages of errors: what a file or a server calls things is shown, and acts on nothing."""

import os
import pathlib
import pickle
import shutil
import subprocess
import sys

import pytest
from attacks import acts

from keras_vit import errors
from keras_vit.errors import printable

ROOT = pathlib.Path(__file__).parent.parent
HOSTILE = "a\x1b]0;title\x07\r\nkeras-vit: all fine\x85\u2028\u202eb\u2066\ud800\x00c"
ERRORS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.KerasVitError)]


@pytest.mark.parametrize("kind", ERRORS)
def test_messages_act_on_nothing(kind):
    error = kind(f"x.npz holds {HOSTILE}.")
    assert acts(HOSTILE)
    assert not acts(str(error))
    assert str(error).startswith(r"x.npz holds a\x1b]0;title\x07\r\nkeras-vit: all fine")
    assert str(error).endswith("c.")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_long_messages_keep_their_ends():
    message = str(errors.CheckpointError(f"x.npz holds {'a' * 10**6}. Fetch it again."))
    assert len(message) < 2000
    assert message.startswith("x.npz holds aaa")
    assert message.endswith("aaa. Fetch it again.")


@pytest.mark.parametrize("text", ["tabby, tabby cat", "ü 猫 🐈‍⬛ عربى", "a\\nb", " "])
def test_text_of_people_stays(text):
    assert printable(text) == text


def test_another_project_in_the_same_folder_is_noticed(tmp_path):
    """keras-vit 1.0.1 installs keras_vit/__init__.py and keras_vit/vit.py among others."""
    folder = tmp_path / "keras_vit"
    shutil.copytree(ROOT / "keras_vit", folder, symlinks=False, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "vit.py").write_text("")

    def run(*arguments):
        environment = os.environ | {"PYTHONPATH": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, cwd=tmp_path, env=environment
        )
        return done.returncode, done.stderr

    assert "pip uninstall -y keras-vit" in run("-c", "import keras_vit")[1]
    for overwrite in (lambda path: path.write_text('__version__ = "1.0.0"\n'), os.remove):
        overwrite(folder / "__init__.py")
        status, said = run("-c", "from keras_vit.cli import main; main()")
        assert status == 1 and said.startswith("keras-vit: Another project, keras-vit on PyPI, has files in the same")
