"""The paper's protocol: what it trains on what, what it takes for the best, and that it survives kills."""

import dataclasses
import json
import signal

import numpy as np
import pytest
from forking import forked_commands

from keras_vit import data, training
from keras_vit.commands.finetune import print_protocol
from keras_vit.console import Console
from keras_vit.data import DataError
from keras_vit.data.duplicates import Duplicates, Pair
from keras_vit.errors import ConfigError, UnknownNameError
from keras_vit.evaluation import find_published
from keras_vit.trainers import protocol
from keras_vit.trainers.plan import load_model, recipe_for
from keras_vit.trainers.protocol import run_protocol
from keras_vit.trainers.search import load_examples, make_grid, search_fields
from keras_vit.trainers.settings import Settings, parse_search
from keras_vit.trainers.train import train

SMALL = {"dataset": "digits", "steps": 8, "batch_size": 16}


def finds(best, asked):
    """A search that notes what it is asked, and finds `best`."""

    def search_fields(settings, recipe, folder, tell, every, grid):
        asked.append((recipe.name, grid, folder.name))
        return training.SearchResult(recipe.with_(**best), best, ((best, 0.5),))

    return search_fields


@pytest.mark.slow
def test_search_then_all_images_then_one_test(tiny, tmp_path, capsys, monkeypatch):
    asked, best = [], {"learning_rate": 0.3, "label_smoothing": 0.1}
    monkeypatch.setattr(protocol, "search_fields", finds(best, asked))
    settings = Settings(model=tiny, **SMALL)
    out = tmp_path / "paper"
    found = run_protocol(settings, out, seeds=2, every=8)
    print_protocol(Console(), settings, found)
    rates = pytest.approx([0.003, 0.009, 0.03, 0.09])  # Table 4's, about the default of other data, 0.03
    assert asked == [("finetune-photos", {"learning_rate": rates}, "search")]
    assert found["fields"] == best
    assert found["mean"] == pytest.approx(np.mean(found["accuracies"]))
    assert found["deviation"] == pytest.approx(np.std(found["accuracies"], ddof=1))
    for seed in (0, 1):
        config = json.loads((out / f"seed-{seed}" / "config.json").read_text())
        assert (config["recipe"]["learning_rate"], config["recipe"]["label_smoothing"]) == (0.3, 0.1)
        assert config["settings"]["split"] == "train+validation" and config["settings"]["seed"] == seed
        assert not (out / f"seed-{seed}" / "best.weights.npz").exists()
    assert "1,437 to train on, none held out" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(training.RunError, match="already has results. Resume them"):
        run_protocol(settings, out, seeds=2)
    with pytest.raises(ConfigError, match="begun with steps=8. Received: steps=9"):
        run_protocol(Settings(model=tiny, **SMALL | {"steps": 9}), out, resume=True)
    monkeypatch.setattr(protocol, "train", None)
    assert run_protocol(settings, out, seeds=2, resume=True) == found


@pytest.mark.parametrize(
    "changes, seeds, error, says",
    [
        ({"pretrain": True}, 3, ConfigError, "fine-tunes a model. Received: pretrain=True"),
        ({"learning_rate": 0.1}, 3, ConfigError, "Leave learning_rate out"),
        ({}, 0, ConfigError, "seeds must be positive"),
        ({"search": ["dropout_rate=x"]}, 3, ConfigError, "dropout_rate must be a number. Received: 'x'"),
        ({"dataset": "objectnet:nowhere"}, 3, DataError, "There is no folder nowhere"),
    ],
)
def test_what_is_not_the_protocol(changes, seeds, error, says, tmp_path):
    with pytest.raises(error, match=says):
        settings = Settings(**{"model": "ViT-B/16", **SMALL, **changes})
        run_protocol(settings, tmp_path / "paper", seeds=seeds)
    assert not (tmp_path / "paper").exists()


def test_a_dataset_without_a_test_split(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(3):
            (tmp_path / "photos" / name / f"{number}.png").touch()
    settings = Settings(model="ViT-B/16", dataset=f"folder:{tmp_path / 'photos'}")
    with pytest.raises(DataError, match="tests once, on examples that chose nothing; folder:"):
        run_protocol(settings, tmp_path / "paper")


@pytest.mark.slow
def test_a_list_of_duplicates_is_of_one_split(tiny, tmp_path, monkeypatch):
    """That of train stays out of a search too; the protocol's is of all that its runs train on."""
    lists = {split: tmp_path / f"{split}.json" for split in ("train", "train+validation")}
    for split, path in lists.items():
        pair = Pair(3, "3", "digits (test)", 0, "0", 0, False)
        Duplicates("digits", split, data.load("digits", split).num_examples, (pair,)).save(path)
    settings = Settings(model=tiny, **SMALL, without=str(lists["train"]))
    whole = data.load("digits").num_examples
    assert load_examples(settings)[0].num_examples == whole - 1
    assert load_examples(dataclasses.replace(settings, examples=50))[0].num_examples == 50
    with pytest.raises(DataError, match="is for the split train of digits, not train.validation"):
        run_protocol(settings, tmp_path / "paper")
    asked = []
    monkeypatch.setattr(protocol, "search_fields", finds({"learning_rate": 0.1}, asked))
    settings = dataclasses.replace(settings, without=str(lists["train+validation"]), split="train+validation")
    assert load_examples(settings)[0].num_examples == whole
    run_protocol(dataclasses.replace(settings, steps=1), tmp_path / "paper", seeds=1)
    assert len(asked) == 1


@pytest.mark.slow
def test_a_search_by_masked_patches(tmp_path):
    """It trains what the run trains: the objective's model, with the position embeddings asked for."""
    arguments = {"model": "ViT-Test/4", "dataset": "digits", "pretrain": True, "objective": "masked-patches"}
    sizes = {"image_size": 16, "batch_size": 16, "steps": 1}
    settings = Settings(**arguments, **sizes, search=["weight_decay=0.1"], position_embedding="2d")
    examples = load_examples(settings)[0]
    recipe = recipe_for(settings, examples)
    model = load_model(settings, recipe, examples)
    assert model.encoder.config.position_embedding == "2d"
    found = search_fields(settings, recipe, tmp_path / "search", print, 2, make_grid(settings, recipe))
    assert found.best == {"weight_decay": 0.1} and 0 <= found.accuracy <= 1
    other = dataclasses.replace(settings, augmentation="light1")
    with pytest.raises(ConfigError, match="were begun with augmentation=None. Received: augmentation='light1'"):
        search_fields(other, recipe, tmp_path / "search", print, 2, make_grid(other, recipe))


def test_the_command_line(keras_vit, tmp_path):
    status, _, err = keras_vit("finetune", "--data", "digits", "--out", tmp_path / "run", "--seeds", 2)
    assert status == 1 and "--seeds sets how many runs --protocol paper has" in err
    arguments = ("--data", "digits", "--out", tmp_path / "run", "--protocol", "paper")
    assert keras_vit("finetune", *arguments, "--seeds", 0).status == 2
    assert keras_vit("finetune", *arguments[:-1], "papr").status == 2
    status, _, err = keras_vit("finetune", *arguments, "--learning-rate", 0.1)
    assert status == 1 and "Leave learning_rate out" in err and not (tmp_path / "run").exists()


@pytest.mark.parametrize("rule, taken", [(0.6, "bit-hyperrule"), (0.4, None)])
def test_resnets_also_try_the_hyper_rule(rule, taken, tmp_path, monkeypatch):
    """B.1.1; the better of the two on the development split, never on the test set."""

    def search_fields(settings, recipe, folder, tell, every, grid):
        best = {name: values[0] for name, values in grid.items()}
        accuracy = rule if recipe.name.startswith("bit-hyperrule") else 0.5
        return training.SearchResult(recipe.with_(**best), best, ((best, accuracy),))

    monkeypatch.setattr(protocol, "search_fields", search_fields)
    settings = Settings(model="R50x1", dataset="digits")
    chosen, fields, scores = protocol.find_settings(settings, tmp_path, print, 100)
    assert chosen.recipe == taken and [name for name, *_ in scores] == ["finetune-photos", "bit-hyperrule-small"]
    assert fields["learning_rate"] == pytest.approx(0.003 * 128 / 512 if taken else 0.001 * 0.03 / 0.01)
    _, _, scores = protocol.find_settings(Settings(model="ViT-B/16", dataset="digits"), tmp_path, print, 100)
    assert len(scores) == 1


def test_the_search_has_the_recipe_of_the_final_runs_and_keeps_single_values(tmp_path, monkeypatch):
    """finetune-photos' batch is a power of two that makes eight batches: 128 of the 1,437 images of both splits."""
    asked = []

    def search_fields(settings, recipe, folder, tell, every, grid):
        asked.append(recipe)
        return training.SearchResult(recipe, {}, (({}, 0.5),))

    monkeypatch.setattr(protocol, "search_fields", search_fields)
    settings = Settings(model="ViT-B/16", dataset="digits", split="train+validation")
    protocol.find_settings(settings, tmp_path, print, 100)
    assert asked == [recipe_for(settings, data.load("digits", "train+validation"))]
    given = dataclasses.replace(settings, search=["learning_rate=0.3", "dropout_rate=0.1"])
    _, fields, scores = protocol.find_settings(given, tmp_path, print, 100)
    assert (fields, scores, len(asked)) == ({"learning_rate": 0.3, "dropout_rate": 0.1}, [], 1)


def test_the_papers_numbers_stand_beside(capsys):
    settings = Settings(model="ViT-L/16", dataset="cifar10")
    published = find_published("ViT-L/16", "cifar10")
    summary = {"accuracies": [0.99, 0.991], "mean": 0.9905, "deviation": 0.0007, "published": published}
    print_protocol(Console(width=100), settings, summary)
    said = capsys.readouterr().out
    assert "99.05 ± 0.07" in said and "99.15 ± 0.03" in said and "ImageNet-21k" in said and "Table 6" in said


def test_what_a_search_asks_for():
    recipe = training.recipe("finetune-pets", batch_size=128)
    settings = Settings(model="ViT-B/16", dataset="digits", grid_search=True, search=["label_smoothing=0, 0.1"])
    grid = make_grid(settings, recipe)
    assert grid == {"learning_rate": pytest.approx([0.00025, 0.00075, 0.0025, 0.0075]), "label_smoothing": [0.0, 0.1]}
    assert parse_search(["steps=10,20", "momentum-dtype=none,bfloat16", "augmentation=none"]) == {
        "steps": [10, 20],
        "momentum_dtype": [None, "bfloat16"],
        "augmentation": ["none"],
    }
    assert parse_search(["position_embedding=none,2d", "classifier=none,gap"]) == {
        "position_embedding": ["none", "2d"],
        "classifier": [None, "gap"],
    }
    for texts, error, says in (
        (["dropout_rate"], ConfigError, "Expected a field and its values"),
        (["dropout_rate=0,"], ConfigError, "Expected a field and its values"),
        (["dropuot_rate=0"], UnknownNameError, "Did you mean dropout_rate"),
        (["dropout_rate=0", "dropout_rate=0.1"], ConfigError, "in one text"),
        (["steps=1.5"], ConfigError, "steps must be a whole number"),
        (["classifier=7"], ConfigError, "classifier must be token or gap or patches. Received: '7'"),
    ):
        with pytest.raises(error, match=says):
            parse_search(texts)
    with pytest.raises(ConfigError, match="steps is given, and steps searched for"):
        make_grid(Settings(model="ViT-B/16", search=["steps=1,2"], **SMALL), recipe)
    given = {"model": "ViT-B/16", "dataset": "digits"}
    with pytest.raises(ConfigError, match="epochs is given, and steps searched for"):
        make_grid(Settings(**given, search=["steps=1,2"], epochs=3), recipe)
    with pytest.raises(ConfigError, match="stochastic_depth is given, and stochastic_depth_rate searched for"):
        make_grid(Settings(**given, search=["stochastic_depth_rate=0,0.2"], stochastic_depth=0.1), recipe)
    with pytest.raises(ConfigError, match="grid_search tries the recipe's"):
        make_grid(Settings(model="ViT-B/16", dataset="digits", grid_search=True, search=["learning_rate=1"]), recipe)


@pytest.mark.slow
@pytest.mark.long
def test_a_killed_protocol_goes_on_to_the_same_bits(tiny, tmp_path):
    """Killed inside the search, between its points, inside a seed and between seeds, in processes of their own."""
    command = ["finetune", "--model", tiny, "--data", "digits", "--protocol", "paper", "--seeds", "2", "--every", "2"]
    command += ["--steps", "12", "--batch-size", "8", "--search", "learning_rate=0.01,0.1"]
    cut = tmp_path / "cut"
    with forked_commands() as run:
        assert run([*command, "--out", tmp_path / "whole"]) == 0
        for place, pattern in (
            (cut / "search" / "point-0" / "checkpoints", "step-*"),
            (cut / "search", "scores.json"),
            (cut / "seed-0" / "checkpoints", "step-*"),
            (cut / "seed-1", "config.json"),
        ):
            assert run([*command, "--out", cut, "--resume"], place, pattern) == -signal.SIGKILL
        assert run([*command, "--out", cut, "--resume"]) == 0
    whole, resumed = (json.loads((tmp_path / name / "results.json").read_text()) for name in ("whole", "cut"))
    assert whole == resumed
    for name in ("seed-0", "seed-1"):
        before, after = (dict(np.load(tmp_path / place / name / "last.weights.npz")) for place in ("whole", "cut"))
        assert before.keys() == after.keys() and all(np.array_equal(before[key], after[key]) for key in before)
    given = {"dataset": "digits", "steps": 12, "batch_size": 8, **whole["found"]["fields"], "seed": 1}
    alone = train(Settings(model=tiny, split="train+validation", test=True, **given), tmp_path / "alone")
    assert alone.accuracy == whole["accuracies"][1]
