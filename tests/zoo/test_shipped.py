"""Weights that come with the package: that they are what their rows and cards say, and that they need nothing else."""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from samples import load_sample
from ship import MOST_BYTES, format_card

from keras_vit import evaluation, zoo
from keras_vit.data.datasets.arrays import FASHION
from keras_vit.errors import CheckpointError
from keras_vit.models import cost
from keras_vit.trainers.choices import choose_checkpoint
from keras_vit.trainers.provenance import describe_provenance
from keras_vit.zoo import loading as shipping
from keras_vit.zoo.names import registry
from keras_vit.zoo.names.rows import checkpoints, class_names, default_tag

ROWS = [row for row in checkpoints() if row.file]


@pytest.fixture(scope="module", params=ROWS, ids=lambda row: row.name)
def shipped(request):
    """(row, model)"""
    return request.param, zoo.load(request.param.name)


def test_the_stated_accuracy(shipped, tmp_path):
    row, model = shipped
    found = evaluation.evaluate(model, load_sample(row.tag, tmp_path), 250).top1
    assert found.count == row.record["sample_images"]
    assert abs(found.right - row.record["sample_right"]) <= 1  # other processors round otherwise
    # Of the whole test set the sample is one of its size: four standard deviations.
    share = row.accuracy / 100
    assert abs(found.value - share) < 4 * np.sqrt(share * (1 - share) / found.count)


def test_the_row_is_the_file(shipped):
    row, model = shipped
    path = shipping.find_shipped(row)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == row.sha256
    assert path.stat().st_size == row.bytes < MOST_BYTES and row.bytes_source == "exact"
    with np.load(path) as arrays:
        kinds = {array.dtype for array in arrays.values()}
        assert sum(array.size for array in arrays.values()) == row.parameters == cost.count_parameters(row.config)
    assert kinds == {np.dtype("float16")} and {v.dtype for v in model.weights} == {"float32"}
    assert (model.config, model.preprocessing, model.labels) == (row.config, row.preprocessing, class_names(row.labels))
    assert row.url == "local" and row.licence == "Apache-2.0"
    assert abs(row.record["float32_accuracy"] - row.accuracy) <= 0.1


def test_the_card_is_the_rows(shipped):
    row, model = shipped
    card = shipping.WEIGHTS / f"{row.file.removesuffix('.npz')}.md"
    assert card.read_text("utf-8") == format_card(row, model)
    for said in (
        *row.record["command"].splitlines(),
        f"Seed: {row.record['seed']}",
        f"{row.record['minutes']} minutes",
        row.sha256,
        row.licence,
    ):
        assert said in card.read_text("utf-8")


def test_exports_say_where_the_weights_come_from(shipped):
    row, model = shipped
    said = describe_provenance(row.name, row.name, model.config)
    assert (said["trained_on"], said["licence"], said["source"]) == (row.record["trained_on"], "Apache-2.0", row.name)
    assert (
        said["evaluated"]["accuracy"] == round(row.accuracy / 100, 6)
        and said["evaluated"]["images"] == row.record["test_images"]
    )


def test_bare_names_and_the_list(shipped):
    row, _ = shipped
    listed = zoo.info(row.name)
    assert (listed.url, listed.accuracy, listed.measured_on) == ("local", row.accuracy, row.record["tested_on"])
    assert default_tag(row.variant) in listed.tags and registry.resolve(row.variant).file
    assert choose_checkpoint(row.variant) == row.variant  # what finetune starts from: the default


def test_other_classes_and_sizes(shipped):
    row, model = shipped
    side = 2 * row.resolution
    other = zoo.load(row.name, num_classes=3, image_size=side)
    assert other.config.image_size == (side, side) and other.labels is None
    assert not np.asarray(other(np.ones((1, side, side, 3), "float32"))).any()  # a new head is zero
    assert zoo.load(row.name, labels=model.labels).labels == model.labels


def test_changed_and_missing_files(monkeypatch, tmp_path):
    row, place = ROWS[0], tmp_path / ROWS[0].file
    shutil.copy(shipping.WEIGHTS / row.file, place)
    monkeypatch.setattr(shipping, "WEIGHTS", tmp_path)
    assert shipping.find_shipped(row) == place
    data = bytearray(place.read_bytes())
    data[len(data) // 2] ^= 1
    place.write_bytes(data)
    with pytest.raises(CheckpointError, match=f"has the sha256 .*; the registry has {row.sha256}. .*install it again"):
        zoo.load(row.name)
    place.unlink()
    with pytest.raises(CheckpointError, match="cannot be read: .*install it again"):
        zoo.load(row.name)


def test_names_of_classes_are_the_datasets(tmp_path):
    assert class_names("fashion_mnist") == FASHION
    assert class_names("emoji") == tuple(load_sample("emoji", tmp_path).class_names)


WITHOUT_SOCKETS = """
import sys
from pathlib import Path

refused = set()


def refuse_sockets(event, _):
    if event.startswith("socket."):
        refused.add(event)
        raise PermissionError("sockets are forbidden")


sys.addaudithook(refuse_sockets)

import numpy as np
from PIL import Image
from typer.testing import CliRunner

from keras_vit import cli, predict, zoo

name, folder = sys.argv[1], Path(sys.argv[2])
model = zoo.load(name)
Image.fromarray(np.zeros((28, 28), "uint8")).save(folder / "photo.png")
assert predict(model, folder / "photo.png").name in model.labels


def run(*arguments):
    done = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done.output


assert "local" in run("info", name) and "local" in run("list", name)
assert any(label in run("predict", folder / "photo.png", "--model", name) for label in model.labels)
run("export", name, "--to", "onnx", "--out", folder / "export")
run("finetune", "--data", "digits", "--model", name, "--steps", 2, "--batch-size", 8, "--out", folder / "run")
assert refused <= {"socket.__new__"}, refused  # urllib3 tries, when it is imported, whether there is IPv6
"""


@pytest.mark.slow
def test_predicting_exporting_and_fine_tuning_without_sockets(tmp_path):
    """Nothing is kept in the cache, and no lock."""
    cache = tmp_path / "cache"
    environment = {**os.environ, "KERAS_VIT_OFFLINE": "1", "KERAS_VIT_CACHE": str(cache)}
    before = sorted(shipping.WEIGHTS.iterdir())
    command = [sys.executable, "-c", WITHOUT_SOCKETS, ROWS[0].name, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert not cache.exists() and sorted(shipping.WEIGHTS.iterdir()) == before
    with zipfile.ZipFile(tmp_path / "run" / "last.weights.npz") as archive:
        assert archive.comment.startswith(b"{")
