"""`--resume` in the shell: nothing retyped, the same data by another spelling, a longer run; and what is refused."""

import csv
import json
import sys

import numpy as np
import pytest
from PIL import Image

from keras_vit import training, zoo
from keras_vit.commands import finetune
from keras_vit.trainers.choices import choose_settings
from keras_vit.trainers.settings import Settings
from keras_vit.zoo.fetch.cache import cached_path

SMALL = "--model ViT-Test/4 --image-size 16 --learning-rate 0.002 --batch-size 9 --epochs 2 --augmentation none"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder to work in, with photos/ of 20 images in each of two classes."""
    root = tmp_path_factory.mktemp("place")
    rng = np.random.default_rng(0)
    for name, shade in (("dark", 60), ("light", 180)):
        (root / "photos" / name).mkdir(parents=True)
        for i in range(20):
            pixels = rng.integers(shade - 40, shade + 40, (20, 20, 3), "uint8")
            Image.fromarray(pixels).save(root / "photos" / name / f"{i:02}.png")
    return root


def steps_in(folder):
    with open(folder / "metrics.csv", newline="") as file:
        return [int(row["step"]) for row in csv.DictReader(file)]


@pytest.mark.slow
def test_a_run_is_resumed_by_its_folder_and_prolonged(keras_vit, place, monkeypatch):
    monkeypatch.chdir(place)
    done = keras_vit("pretrain", "--data", "folder:photos", "--out", "run", *SMALL.split())
    assert done.status == 0, done.err
    # 37 of 40 images are trained on, 4.1 batches of 9 an epoch; the rest are held out.
    assert steps_in(place / "run") == [4, 8]
    lines = done.out.splitlines()
    assert "Compiling the first step." in lines and [line.split()[0] for line in lines if "/2 " in line] == [
        "1/2",
        "2/2",
    ]
    assert max(map(len, lines)) <= 100 and "of 3; 95% interval" in done.out
    for name in ("best.weights.npz", "last.weights.npz", "model.keras", "mistakes.png", "checkpoints/"):
        assert f"\n{name} " in done.out
    for command in ("predict IMAGE --model run", "evaluate run --data folder:photos --split validation", "export run"):
        assert f"keras-vit {command}" in done.out
    assert zoo.load(place / "run/best.weights.npz").labels == ("dark", "light")

    monkeypatch.chdir(place / "photos")  # the run knows where its data are
    done = keras_vit("pretrain", "--out", "../run", "--resume", "--epochs", "3")
    assert done.status == 0, done.err
    assert (
        "goes on at step 8 of 12, in epoch 3 of 3. It was begun with 8 steps: from here on its learning rate"
        in done.out
    )
    assert steps_in(place / "run") == [4, 8, 12]

    for spelling in ("folder:../photos/", f"folder:{place}/photos", "folder:./../photos"):
        monkeypatch.setattr(training.Run, "fit", lambda *_, **__: None)
        assert keras_vit("pretrain", "--out", "../run", "--resume", "--data", spelling).status == 0
    done = keras_vit("pretrain", "--out", "../run", "--resume")
    assert "The run has done all of its 12 steps" in done.out


@pytest.fixture
def begun(place, tmp_path):
    """A run of 8 steps at step 4, as far as it is read before TensorFlow is."""
    settings = {
        "dataset": f"folder:{place / 'photos'}",
        "model": "ViT-Test/4",
        "pretrain": True,
        "epochs": 2,
        "test": False,
    }
    recipe = {"batch_size": 9, "learning_rate": 0.002, "examples": 37}
    store = training.Run(tmp_path / "begun").store
    with training.Run(tmp_path / "begun").files.writing("config.json") as path:
        path.write_text(json.dumps({"settings": settings, "recipe": recipe, "total_steps": 8}))
    store.save(4, {})
    return tmp_path / "begun"


@pytest.mark.parametrize(
    "line, sentence",
    [
        ("pretrain --seed 3", "begun with seed=0. Received: seed=3. Resume it as it was begun"),
        ("finetune --model ViT-Test/4", "was begun with pretrain=True (keras-vit pretrain). Received: pretrain=False"),
        ("pretrain --test", "begun with test=False. Received: test=True"),
        ("pretrain --data digits", "begun with dataset='folder:"),
        ("pretrain --epochs 0.5", "steps, more than 2"),
    ],
)
def test_what_a_run_is_not_resumed_with(keras_vit, begun, line, sentence, monkeypatch):
    done = keras_vit(*line.split(), "--out", begun, "--resume")
    assert done.status == 1 and sentence in done.err


@pytest.mark.parametrize("name, command", [("model", "finetune"), ("teacher", "pretrain")])
def test_a_folder_alone_makes_nobody_ask_an_address(keras_vit, begun, monkeypatch, name, command):
    """A stranger's config.json; what was fetched here before, and what is typed now, may be used."""
    config, address = json.loads((begun / "config.json").read_text()), "https://evil.example/beacon.npz"
    config["settings"] |= {name: address, "pretrain": command == "pretrain"}
    with training.Run(begun).files.writing("config.json") as path:
        path.write_text(json.dumps(config))
    asked = []
    monkeypatch.setattr(finetune, "prepare", lambda settings, *_: asked.append(getattr(settings, name)))
    monkeypatch.setattr(finetune, "import_keras", lambda **_: sys.exit(0))
    done = keras_vit(command, "--out", begun, "--resume")
    assert done.status == 1 and f"If you trust it, resume with {name}={address!r}" in done.err and not asked
    assert keras_vit(command, "--out", begun, "--resume", f"--{name}", address).status == 0
    monkeypatch.setenv("KERAS_VIT_CACHE", str(begun / "cache"))
    cached_path(address).parent.mkdir(parents=True)
    cached_path(address).touch()
    assert keras_vit(command, "--out", begun, "--resume").status == 0 and asked == [address] * 2


@pytest.mark.parametrize("name", ["model", "teacher"])
def test_a_run_is_resumed_with_the_folder_of_the_run_that_it_began_with(begun, tmp_path, monkeypatch, name):
    """config.json names the file of weights in it."""
    (tmp_path / "runs/1").mkdir(parents=True)
    file = tmp_path / "runs/1/model.keras"
    file.touch()
    config = json.loads((begun / "config.json").read_text())
    config["settings"] |= {"pretrain": False, name: str(file)}
    config["digests"] = Settings(**config["settings"]).digests()
    with training.Run(begun).files.writing("config.json") as path:
        path.write_text(json.dumps(config))
    monkeypatch.chdir(tmp_path)
    settings = choose_settings(begun, {name: "runs/1"}, pretrain=False, resume=True)
    assert settings.as_recorded()[name] == str(file)


@pytest.mark.parametrize(
    ("before", "sentence"),
    [
        ({"recipe": {"examples": 35}}, ("begun with 35 images to train on, now folder:", "has 37")),
        ({"held_out": 2}, ("begun with 2 images held out, now folder:", "has 3")),
    ],
)
def test_a_run_whose_images_are_others_now(keras_vit, begun, before, sentence):
    config = json.loads((begun / "config.json").read_text())
    for name, value in before.items():
        config[name] = {**config[name], **value} if isinstance(value, dict) else value
    with training.Run(begun).files.writing("config.json") as path:
        path.write_text(json.dumps(config))
    done = keras_vit("pretrain", "--out", begun, "--resume")
    assert all(part in done.err for part in sentence)


@pytest.mark.parametrize(
    "line, sentence",
    [
        ("finetune --out {out}", "Nothing says what to train on. Give a dataset"),
        ("finetune --out {out} folder:photos", "Give a dataset: --data folder:photos"),
        ("finetune --out {out} --resume", "There is no run in {out} to resume. Give a dataset"),
        ("finetune --out {out} --data folder:absent", "There is no folder absent"),
        ("finetune --out {out} --data digits --model ViT-B/17", "Did you mean ViT-B/16"),
        ("pretrain --out {out} --data digits --model ViT-B/17", "Did you mean ViT-B/16"),
        ("pretrain --out {out} --data digits --model ViT-B/16:i21k", "not with those of ViT-B/16:i21k"),
        (f"pretrain --out {{out}} --data digits --model {__file__}", f"not with those of {__file__}"),
        ("finetune --out {out} --data digits --augmentation strong3", "Did you mean strong2 or strong1"),
        ("finetune --out {out} --data digits --recipe finetune-pet", "Did you mean finetune-pets"),
        ("finetune --out {out} --data cifar-10", "Did you mean cifar10"),
        ("finetune --out {out} --data digits --epochs 0", "epochs must be positive"),
        ("finetune --out {out} --data digits --patience 0", "patience must be positive"),
        ("finetune --out {out} --data digits --patience 2 --split train+validation", "patience needs held-out images"),
    ],
)
def test_typos_are_said_before_tensorflow_is_imported(keras_vit, tmp_path, monkeypatch, line, sentence):
    monkeypatch.setattr(finetune, "import_keras", lambda **_: pytest.fail("too late"))
    out = tmp_path / "runs/1"
    done = keras_vit(*line.format(out=out).split())
    assert done.status == 1 and sentence.format(out=out) in done.err and done.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_ctrl_c_before_the_first_step_and_at_the_end(keras_vit, tmp_path, monkeypatch, begun):
    def interrupted(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr(finetune, "import_keras", interrupted)
    done = keras_vit("pretrain", "--data", "digits", "--model", "ViT-Test/4", "--out", tmp_path / "new")
    assert (done.status, done.out) == (130, "Stopped. Nothing was saved.\n") and not (tmp_path / "new").exists()
    (tmp_path / "new/search").mkdir(parents=True)
    done = keras_vit(
        "pretrain", "--data", "digits", "--model", "ViT-Test/4", "--out", tmp_path / "new", "--grid-search"
    )
    assert done.out == f"Stopped. The search so far is kept in {tmp_path}/new/search: the same command continues it.\n"
    done = keras_vit("pretrain", "--out", begun, "--resume", "--every", 7)
    assert done.status == 130 and f"The run in {begun} is saved at step 4." in done.out
    assert f"Go on with: keras-vit pretrain --out {begun} --resume --every 7\n" in done.out.replace(" \\\n   ", "")
