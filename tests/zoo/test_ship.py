"""tools/ship.py: from a run's folder to weights, row and card."""

import json
import shutil

import numpy as np
import pytest
import ship
from samples import SAMPLES, TEST_SETS, draw_numbers, load_sample

from keras_vit import zoo
from keras_vit.data.datasets.arrays import FASHION
from keras_vit.models import Preprocessing
from keras_vit.trainers.settings import Settings
from keras_vit.zoo.names import rows
from keras_vit.zoo.names.rows import class_names

COMMAND = (
    "keras-vit pretrain --data fashion_mnist:fashion-mnist --model ViT-Mini/4 --recipe mini-vit "
    "--split train+validation --test --learning-rate 0.002 --seed 3 --out RUN"
)
FILE = "ViT-Mini_4-fashion-mnist.npz"


@pytest.fixture
def run(tmp_path):
    """The folder of a run of ViT-Mini/4, as `keras-vit pretrain` leaves it; its head is still zero."""
    folder = tmp_path / "run"
    folder.mkdir()
    zoo.save(zoo.load("ViT-Mini/4", weights=None, labels=FASHION), folder / "last.weights.npz")
    settings = Settings(
        dataset="fashion_mnist:/home/ann/fashion-mnist",
        model="ViT-Mini/4",
        recipe="mini-vit",
        pretrain=True,
        split="train+validation",
        test=True,
        learning_rate=0.002,
        seed=3,
    )
    facts = {
        "settings": settings.as_recorded(),
        "recipe": {"name": "mini-vit", "examples": 60_000},
        "versions": {"keras": "3.99"},
    }
    (folder / "config.json").write_text(json.dumps(facts))
    return folder


@pytest.fixture
def root(tmp_path):
    """A checkout without shipped weights."""
    (tmp_path / "zoo").mkdir()
    shutil.copy(ship.ROOT / "zoo" / "registry.json", tmp_path / "zoo")
    return tmp_path


def test_rounding_keeps_a_description_that_is_a_member_of_its_own(tmp_path):
    labels = [f"class {i:>200}" for i in range(400)]  # longer than a zip file's comment may be
    model = zoo.load("ViT-Test/4", weights=None, labels=labels)
    ship.save_float16(model, tmp_path / "model.npz")
    loaded = zoo.load(tmp_path / "model.npz")
    assert loaded.labels == tuple(labels)
    for rounded, weight in zip(loaded.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(rounded, weight.astype("float16"))


@pytest.mark.slow
def test_a_run_ships(run, root, monkeypatch):
    before = json.loads((root / "zoo/registry.json").read_text("utf-8"))
    sample = SAMPLES / TEST_SETS["fashion-mnist"].sample
    monkeypatch.setattr(ship, "MOST_BYTES", 1000)
    with pytest.raises(SystemExit, match="less than 1,000 ship"):
        ship.ship(run, "fashion-mnist", sample, root)
    monkeypatch.undo()
    assert not list((root / "zoo/weights").iterdir())
    ship.ship(run, "fashion-mnist", sample, root)
    after = json.loads((root / "zoo/registry.json").read_text("utf-8"))
    (found,) = (row for row in after["checkpoints"] if (row["variant"], row.get("file")) == ("ViT-Mini/4", FILE))
    # Fashion-MNIST's classes are equally frequent; equal logits choose the first.
    assert found["accuracy"] == found["record"]["float32_accuracy"] == 10.0
    assert (found["record"]["sample_right"], found["record"]["sample_images"]) == (50, 500)
    assert (found["record"]["command"], found["record"]["seed"]) == (COMMAND, 3)
    assert [row for row in after["checkpoints"] if row != found] == [
        row for row in before["checkpoints"] if (row["variant"], row["tag"]) != ("ViT-Mini/4", "fashion-mnist")
    ]
    weights = zoo.load(root / "zoo/weights" / FILE)
    row = rows.PublicCheckpoint(**after["collections"][found["collection"]] | found)
    assert (weights.config, weights.labels) == (row.config, FASHION) and row.labels == "fashion_mnist"
    original = zoo.load(run / "last.weights.npz")
    for ours, theirs in zip(weights.weights, original.weights, strict=True):
        np.testing.assert_array_equal(ours, np.asarray(theirs).astype("float16").astype("float32"))
    card = (root / "zoo/weights" / FILE).with_suffix(".md").read_text("utf-8")
    assert f"    {COMMAND}\n" in card and "Accuracy: 10.0%, 50 of 500 images" in card and "/home/ann" not in card


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"labels": FASHION[::-1]}, "the run has .'Ankle boot'"),
        ({"labels": FASHION, "num_layers": 1}, "No variant is a model of .*num_layers 1"),
    ],
)
def test_other_models_do_not_ship(fields, said, run, root):
    zoo.save(zoo.load("ViT-Mini/4", weights=None, **fields), run / "last.weights.npz")
    with pytest.raises(SystemExit, match=said):
        ship.ship(run, "fashion-mnist", SAMPLES / "fashion_mnist", root)


def test_the_registry_is_written_as_it_is():
    text = (ship.ROOT / "zoo/registry.json").read_text("utf-8")
    assert ship.format_registry(json.loads(text)) == text


def test_commands_are_what_was_typed(run, tmp_path):
    assert ship.restore_commands(run) == COMMAND
    settings = Settings(dataset="digits", model=str(run / "last.weights.npz"), recipe="mini-vit", seed=1)
    (tmp_path / "second").mkdir()
    (tmp_path / "second/config.json").write_text(json.dumps({"settings": settings.as_recorded()}))
    first, second = ship.restore_commands(tmp_path / "second").splitlines()
    assert first == COMMAND.replace("--out RUN", "--out RUN1")
    assert second == "keras-vit finetune --data digits --model RUN1 --recipe mini-vit --seed 1 --out RUN"


def test_the_commands_of_weights_that_ship_come_first(tmp_path):
    row = next(row for row in rows.checkpoints() if row.name == "R20x0.5:fashion-mnist")
    for name, model in (("a", row.name), ("b", str(tmp_path / "a" / "best.weights.npz"))):
        (tmp_path / name).mkdir()
        settings = Settings(dataset="digits", model=model, recipe="mini-resnet").as_recorded()
        (tmp_path / name / "config.json").write_text(json.dumps({"settings": settings}))
        (tmp_path / name / "best.weights.npz").touch()
    *earlier, last, second, third = ship.restore_commands(tmp_path / "b").splitlines()
    n = len(earlier) + 1
    assert "\n".join([*earlier, last.removesuffix(str(n))]) == row.record["command"] and last.endswith(f"--out RUN{n}")
    digits = "keras-vit finetune --data digits"
    assert second == f"{digits} --model RUN{n} --recipe mini-resnet --out RUN{n + 1}"
    assert third == f"{digits} --model RUN{n + 1} --recipe mini-resnet --out RUN"
    assert ship.measure_minutes(tmp_path / "b") == row.record["minutes"]


def test_samples_are_in_proportion():
    labels = np.repeat([0, 1, 2], [100, 50, 10])
    counts = np.bincount(labels[draw_numbers(labels, 32)])
    assert list(counts) == [20, 10, 2]


@pytest.mark.slow
@pytest.mark.parametrize("tag", TEST_SETS)
def test_samples_are_of_every_class(tag, tmp_path):
    batches = load_sample(tag, tmp_path).evaluation(50, Preprocessing((8, 8)))
    found = {int(label) for _, labels, weights in batches for label in labels[weights > 0]}
    assert found == set(range(len(class_names(TEST_SETS[tag].dataset))))
