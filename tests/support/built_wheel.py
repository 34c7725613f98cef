"""The package's wheel, as users install it."""

import pathlib
import subprocess
import sys
import tempfile

from filelock import FileLock

ROOT = pathlib.Path(__file__).parent.parent.parent


def build_wheel(folder):
    """The path of the wheel that is built into `folder`; two builds at a time would write into one build/."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    with FileLock(pathlib.Path(tempfile.gettempdir()) / "keras-vit-tests-build.lock"):
        done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = pathlib.Path(folder).glob("*.whl")
    return wheel
