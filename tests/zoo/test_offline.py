"""KERAS_VIT_OFFLINE=1 in every room: a process that notes each try to reach a host, and finds none."""

import os
import socket
import subprocess
import sys

import pytest

CODE = """
import sys

tries, names = [], ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto")
sys.addaudithook(lambda name, arguments: tries.append((name, arguments)) if name in names else None)

import numpy as np
from keras_vit import data, export, zoo
from keras_vit.errors import KerasVitError

datasets = ("cifar10", "tfds:mnist", "tfds:huggingface:mnist", "vtab/caltech101", "tfds:none")
models = ("ViT-B/16", "R50x1", "hf://owner/repo", "gs://bucket/a.npz", "https://h.example/a.npz")
for load, name in (*((data.load, name) for name in datasets), *((zoo.load, name) for name in models)):
    try:
        load(name)
        sys.exit(f"{name} was loaded")
    except KerasVitError as error:
        print(name, "|", error)
model = zoo.load("ViT-Test/4", weights=None, num_classes=3, image_size=8)
export.convert(model, sys.argv[1], images=np.zeros((8, 8, 8, 3), "float32"))
sys.exit(f"tried {tries}" if tries else 0)
"""


@pytest.mark.slow
def test_no_host_is_asked(tmp_path):
    """Python's tries are audited; those of C++ libraries, which know proxies too, would come to the listener."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.01)
        proxy = f"http://127.0.0.1:{listener.getsockname()[1]}"
        names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
        environment = {**os.environ, **dict.fromkeys(names, proxy), "KERAS_VIT_OFFLINE": "1"}
        environment |= {"KERAS_VIT_CACHE": str(tmp_path / "cache"), "TFDS_DATA_DIR": str(tmp_path / "data")}
        environment["HF_HUB_CACHE"] = str(tmp_path / "hub")
        command = [sys.executable, "-c", CODE, str(tmp_path / "model.onnx")]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr[-2000:]
        with pytest.raises(TimeoutError):
            listener.accept()
    lines = done.stdout.splitlines()
    assert len([line for line in lines if " | " in line]) == 10
    for place in ("data/cifar10/", "data/mnist/", "cache/storage.googleapis.com/", "hub"):
        assert str(tmp_path / place) in done.stdout
