"""onnxruntime-web for tests of pages, put where the package's own fetching keeps it."""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from keras_vit.errors import DownloadError
from keras_vit.export.web import RUNTIME, VERSION, fetch_runtime
from keras_vit.zoo.fetch.cache import cached_path

FOLDER = "ONNXRUNTIME_WEB"  # names a folder that has the files


def fill_cache(work):
    """Puts the runtime's files into the cache, from a folder, by npm, or from the network; else skips the test."""
    folder = find_folder(work)
    for file in RUNTIME:
        place = cached_path(file.address)
        place.parent.mkdir(parents=True, exist_ok=True)
        if folder and not place.exists():
            shutil.copyfile(folder / file.name, place)
    try:
        return fetch_runtime()
    except DownloadError as error:
        pytest.skip(f"onnxruntime-web is not to be had: {error} Name a folder with its files by {FOLDER}.")


def find_folder(work):
    if FOLDER in os.environ:
        return Path(os.environ[FOLDER])
    if shutil.which("npm"):
        command = ["npm", "pack", "--silent", f"onnxruntime-web@{VERSION}"]
        packed = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=300)
        if packed.returncode == 0:
            with tarfile.open(work / packed.stdout.split()[-1]) as archive:
                archive.extractall(work, filter="data")
            return work / "package" / "dist"
    return None
