"""What `finetune` and `pretrain` take by themselves, from the command line down to the model; against the paper."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import keras_vit
from keras_vit import cli, data, training, zoo
from keras_vit.commands import finetune
from keras_vit.console import Console
from keras_vit.errors import ConfigError, UnknownNameError
from keras_vit.models.variants import VARIANTS
from keras_vit.trainers import choices, plan, train
from keras_vit.trainers.settings import Settings
from keras_vit.training.runs.checkpoints import Checkpoints
from keras_vit.training.runs.run_folder import RunFolder
from keras_vit.training.scaling import choose_batch_size
from keras_vit.zoo.names.rows import checkpoints

# The training splits that the paper's development sets leave (Appendix B.1.1), and typical images.
EXAMPLES = {
    "imagenet21k": (14_145_922, (375, 500)),
    "imagenet2012": (1_268_355, (375, 500)),
    "cifar10": (49_000, (32, 32)),
    "cifar100": (49_000, (32, 32)),
    "oxford_iiit_pet": (3312, (375, 500)),
    "oxford_flowers102": (918, (500, 600)),
    "vtab/eurosat": (800, (64, 64)),
}


@pytest.fixture
def planned(monkeypatch):
    """Function of a command line to the recipe, and the settings, that it would train by."""

    def plan_of(line, examples=None):
        seen = []
        monkeypatch.setattr(train, "train", lambda settings, out, **_: seen.append(settings))
        monkeypatch.setattr(finetune, "prepare", lambda settings, *_: settings)
        monkeypatch.setattr(finetune, "print_outcome", lambda *_: None)
        cli.app([*line.split(), "--out", "runs/never"], standalone_mode=False)
        settings = seen[0]
        count, size = examples or EXAMPLES[settings.dataset.removeprefix("tfds:")]
        stub = SimpleNamespace(
            num_examples=count,
            typical_size=lambda: size,
            multi_label=False,
            masked=False,
            objective=plan.objective_of(settings),
        )
        return plan.recipe_for(settings, stub), settings

    return plan_of


PRETRAINING = {
    "imagenet21k --model ViT-B/16": ("pretrain-imagenet21k-ViT-B", 90, 1e-3, "linear", 0.03, 0.1, "sigmoid", True),
    "imagenet21k --model ViT-L/32": ("pretrain-imagenet21k-ViT-L", 90, 1e-3, "linear", 0.03, 0.1, "sigmoid", True),
    "imagenet21k --model R50+ViT-B/32": ("pretrain-imagenet21k-ViT-B", 90, 1e-3, "linear", 0.03, 0.1, "sigmoid", True),
    "imagenet21k --model R50x1": ("bit-i21k", 90, 0.48, "cosine", 1e-3, 0.0, "sigmoid", None),
    "imagenet2012 --model ViT-B/16": ("pretrain-imagenet", 300, 3e-3, "cosine", 0.3, 0.1, "softmax", True),
    "imagenet2012 --model R101x1": ("bit-i1k", 90, 1.6, "cosine", 1e-3, 0.0, "softmax", None),
    "imagenet2012 --model ViT-L/16 --recipe pretrain-jft": (
        *("pretrain-jft-ViT-L/16", 14, 4e-4, "linear", 0.1, 0.0, "sigmoid", True),
    ),
    "cifar10 --model ViT-S/16": ("pretrain-imagenet", 30, 3e-3, "cosine", 0.3, 0.1, "softmax", True),
}


@pytest.mark.parametrize("line", PRETRAINING)
def test_pretraining_takes_the_row_of_data_and_model(planned, line):
    r, _ = planned(f"pretrain --data {line}")
    found = (r.name, r.epochs, r.learning_rate, r.decay, r.weight_decay, r.dropout_rate, r.loss)
    assert (*found, r.representation_size) == PRETRAINING[line]
    assert r.batch_size == 4096
    if line.startswith("imagenet") and "--recipe" not in line:
        assert (r.image_size, r.warmup_steps) == (224, training.RECIPES[r.name].warmup_steps)


MASKED_PATCHES = {  # row, steps, loss
    "imagenet2012 --model ViT-B/16": ("pretrain-masked-patches-100k", 100_000, "softmax"),
    "imagenet2012 --patch-target pixels": ("pretrain-masked-patches-100k", 100_000, "squared-error"),
    "imagenet2012 --recipe pretrain-masked-patches": ("pretrain-masked-patches", 1_000_000, "softmax"),
    "tfds:jft300m --patch-target colours-4x4": ("pretrain-masked-patches", 1_000_000, "softmax"),
    "cifar10": ("pretrain-masked-patches-100k", round(30 * 49_000 / 4096), "softmax"),
    "imagenet2012 --recipe pretrain-imagenet": ("pretrain-imagenet", round(300 * 1_268_355 / 4096), "softmax"),
}


@pytest.mark.parametrize("line", MASKED_PATCHES)
def test_masked_patches_take_their_row(planned, line):
    known = (303_000_000, (300, 300)) if "jft" in line else None
    r, _ = planned(f"pretrain --objective masked-patches --data {line}", examples=known)
    assert (r.name, r.total_steps, r.loss) == MASKED_PATCHES[line]
    assert (r.representation_size, r.head_bias, r.batch_size, r.image_size) == (
        *(None, None, 4096),
        None if line == "cifar10" else 224,
    )
    if r.name != "pretrain-imagenet":
        assert r.warmup_steps == pytest.approx(10_000 * r.total_steps / training.RECIPES[r.name].total_steps, abs=1)


def test_a_dataset_called_jft(planned):
    for name in ("tfds:jft300m", "tfds:jft/18k:1.*"):
        recipe, _ = planned(f"pretrain --data {name} --model ViT-H/14", examples=(303_000_000, (300, 300)))
        assert (recipe.name, recipe.epochs) == ("pretrain-jft-ViT-H/14", 14)
    with pytest.raises(ConfigError, match="no learning rate, for R200x3"):
        planned("pretrain --data tfds:jft300m --model R200x3", examples=(303_000_000, (300, 300)))
    with pytest.raises(UnknownNameError, match="Did you mean ViT-B/16"):
        planned("pretrain --data imagenet2012 --model ViT-B/17")


FINE_TUNING = {  # row, epochs, pixels
    "cifar10": ("finetune-cifar10", 104.5, 384),
    "cifar100 --model R50x1": ("finetune-cifar100", 104.5, 384),
    "oxford_iiit_pet": ("finetune-pets", 77.3, 384),
    "oxford_iiit_pet --batch-size 32": ("finetune-pets", 77.3, 384),
    "tfds:oxford_flowers102": ("finetune-flowers", 278.9, 384),
    "imagenet2012": ("finetune-imagenet", 8.07, 384),
    "imagenet2012 --batch-size 64": ("finetune-imagenet", 8.07, 384),
    "imagenet2012 --model ViT-L/16": ("finetune-imagenet-ViT-L/16", 8.07, 512),
    "imagenet2012 --model ViT-H/14:i21k": ("finetune-imagenet-ViT-H/14", 8.07, 518),
    "cifar10 --model ViT-H/14": ("finetune-cifar10", 104.5, 378),
    "vtab/eurosat": ("finetune-vtab", 1600, 384),
    "cifar10 --recipe bit-hyperrule --model R50x1": ("bit-hyperrule-medium", 104.5, 128),
    "cifar10 --recipe BiT-HyperRule --model R50x1": ("bit-hyperrule-medium", 104.5, 128),
    "oxford_flowers102 --recipe bit-hyperrule --model R152x2": ("bit-hyperrule-small", 278.9, 384),
    "imagenet2012 --recipe bit-hyperrule --model R152x4": ("bit-hyperrule-large", 8.07, 480),
    "cifar10 --image-size 224": ("finetune-cifar10", 104.5, 224),
}


@pytest.mark.parametrize("line", FINE_TUNING)
def test_the_papers_datasets_are_fine_tuned_as_in_the_paper(planned, line):
    recipe, settings = planned(f"finetune --data {line}")
    name, epochs, pixels = FINE_TUNING[line]
    count, _ = EXAMPLES[settings.dataset.removeprefix("tfds:")]
    assert (recipe.name, recipe.image_size) == (name, pixels)
    assert recipe.images_seen / count == pytest.approx(epochs, rel=0.01)
    batch = settings.batch_size or 512
    own = training.RECIPES[name].learning_rate
    assert (recipe.batch_size, recipe.learning_rate) == (batch, pytest.approx(own * batch / 512))


@pytest.mark.parametrize("count, batch", [(5, 5), (12, 8), (500, 32), (1000, 64), (5000, 512), (100_000, 512)])
def test_other_data_take_thirty_epochs_at_the_models_size(planned, count, batch):
    recipe, _ = planned("finetune --data folder:photos", examples=(count, (300, 400)))
    assert (recipe.name, recipe.batch_size, recipe.image_size) == ("finetune-photos", batch, None)
    assert recipe.images_seen / count == pytest.approx(30, abs=batch / count)
    assert recipe.learning_rate == 0.03  # whatever the batch: docs/finetuning.md
    assert planned("finetune --data folder:photos --steps 7", examples=(count, (9, 9)))[0].total_steps == 7
    own = planned("finetune --data folder:photos --learning-rate 0.002", examples=(count, (9, 9)))[0]
    assert own.learning_rate == 0.002
    row = planned("finetune --data folder:photos --recipe finetune-cifar10", examples=(count, (9, 9)))[0]
    assert row.learning_rate == pytest.approx(0.01 * row.batch_size / 512)  # as Table 4 scales, when asked for by name
    assert recipe.model_arguments["image_size"] is None


ROOT = Path(__file__).parents[2]
WRITTEN = {  # page: what its photos are called there
    "README.md": ("photos", "ViT-B/16"),
    "examples/own_photos.py": ("train", "ViT-Ti/16"),
}


@pytest.mark.parametrize("page", WRITTEN)
def test_the_pages_train_as_the_command_does(planned, page):
    """One rule for learning rate, batch, length, size and weights, whoever asks."""
    photos, model = WRITTEN[page]
    text = (ROOT / page).read_text("utf-8")
    written = re.search(r"recipe = (keras_vit\.training\.recipe\([^)]*\))", text)[1]
    for count in (12, 500, 6000):
        names = {photos: SimpleNamespace(num_examples=count), "epochs": None, "batch_size": None}
        asked, _ = planned(f"finetune --data folder:photos --model {model}", examples=(count, (300, 400)))
        assert eval(written, {"keras_vit": keras_vit}, names) == asked
    assert f'"{choices.choose_checkpoint(model)}"' in text
    assert "augmentation=recipe.augmentation" in text


def test_fine_tuning_starts_from_weights_before_it():
    """A bare variant's is a checkpoint that has seen ImageNet-21k alone; the paper's own where it is public."""
    rows = {row.name: row for row in checkpoints() if row.tag}
    for model in VARIANTS:
        found = choices.choose_checkpoint(model)
        if found == model:
            assert not [row for row in rows.values() if row.variant == model and row.tag in choices.PRETRAINED]
        else:
            assert (rows[found].variant, rows[found].pretraining, rows[found].num_classes) == (
                *(model, "imagenet21k", 21_843),
            )
    own = {model: choices.choose_checkpoint(model).partition(":")[2] for model in VARIANTS}
    assert {own[model] for model in ("ViT-B/16", "ViT-B/32", "ViT-L/16", "ViT-L/32", "ViT-H/14")} == {"i21k"}
    assert own["R50x1"] == "bit-m" and own["ViT-S/16"] == "augreg-i21k"
    assert choices.choose_checkpoint("ViT-B/16:sam") == "ViT-B/16:sam"
    assert choices.choose_checkpoint("runs/1/model.keras") == "runs/1/model.keras"


def test_batches_are_cut_to_what_memory_has():
    assert training.choose_microbatches(512, (384, 384)) == 64  # of 8 images
    assert training.choose_microbatches(512, (224, 224)) == 16
    assert training.choose_microbatches(512, (224, 224), replicas=8) == 2
    assert training.choose_microbatches(510, (224, 224), replicas=3) == 10  # of 17: parts are equal
    assert training.choose_microbatches(32, (32, 32)) == 1
    assert choose_batch_size(512, 100_000, paper=False, replicas=3) == 510
    assert choose_batch_size(512, 100, paper=False, replicas=24) == 24


def test_typical_size(tmp_path):
    from PIL import Image

    for name, sizes in {"a": [(30, 20)] * 3, "b": [(50, 40)] * 4}.items():
        (tmp_path / name).mkdir()
        for i, size in enumerate(sizes):
            Image.new("RGB", size).save(tmp_path / name / f"{i}.png")
    (tmp_path / "b" / "torn.png").write_bytes(b"nothing")
    photos = data.load(f"folder:{tmp_path}", "train+validation")
    assert photos.typical_size() == (40, 50)
    assert data.load("digits").typical_size() == (8, 8)


@pytest.fixture
def without_steps(monkeypatch):
    """Runs that train nothing, and judge nothing."""
    monkeypatch.setattr(training.Run, "fit", lambda *_, **__: None)
    monkeypatch.setattr(train, "judge", lambda *_: None)


def run(tiny, out, resume=False, found=None, **fields):
    console = Console(record=True, width=300)
    fields = {"steps": 4, "batch_size": 32, **fields}
    settings = Settings(model=tiny, dataset="digits", **fields)
    folder = RunFolder(out)
    settings = plan.prepare(settings, folder, resume)
    tell = lambda said: console.print(said, soft_wrap=True)  # noqa: E731
    result = train.train(settings, folder, resume=resume, every=2, tell=tell, found=found)
    return result and result.accuracy, console.export_text()


@pytest.mark.slow
def test_train_on_everything_and_test_once(tiny, tmp_path, monkeypatch):
    """Appendix B.1.1's final protocol: 1,437 digits, no best by any accuracy, the last weights on the 360 others."""
    loaded, load = [], data.load
    monkeypatch.setattr(data, "load", lambda name, split, **given: loaded.append(split) or load(name, split, **given))
    accuracy, said = run(tiny, tmp_path / "run", split="train+validation", test=True, learning_rate=0.05)
    assert sorted(loaded) == ["test", "train+validation"]
    assert "1,437 to train on, none held out: the last weights are the run's, 360 to test on, once" in said
    assert not (tmp_path / "run" / "best.weights.npz").exists()
    assert "val_" not in (tmp_path / "run" / "metrics.csv").read_text()
    model = zoo.load(tmp_path / "run" / "last.weights.npz", labels=load("digits").class_names)
    rows = list(load("digits", "test").evaluation(360, model.preprocessing).as_numpy_iterator())[0]
    right = np.asarray(model(rows[0])).argmax(-1) == rows[1]
    assert (
        accuracy == right.mean()
        and f"Test accuracy of the last step: {accuracy:.1%} ({right.sum()} of 360; 95% interval" in said
    )
    again = dict(split="train+validation", test=True, learning_rate=0.05, resume=True)
    assert run(tiny, tmp_path / "run", **again)[0] == accuracy
    with pytest.raises(ConfigError, match="begun with test=True. Received: test=False"):
        run(tiny, tmp_path / "run", **again | {"test": False})


def test_a_resumed_run_keeps_its_batch(tiny, tmp_path, monkeypatch, without_steps):
    """The default batch, 128 here, follows the number of replicas; the run that has begun does not."""
    settings = Settings(model=tiny, dataset="digits", steps=2)
    begun = {"settings": vars(settings), "recipe": {"batch_size": 96, "learning_rate": 0.004}}
    (tmp_path / "config.json").write_text(json.dumps(begun))
    monkeypatch.setattr(Checkpoints, "steps", lambda _: [1])
    monkeypatch.setattr(RunFolder, "check", lambda *_: None)
    _, said = run(tiny, tmp_path, resume=True, steps=2, batch_size=None)
    assert "2 steps of 96 images at a learning rate of 0.004:" in said


@pytest.mark.parametrize(
    "asked, length, found, says",
    [
        ({"search": ["steps=4,6", "weight_decay=0.1,0.3"]}, {}, None, "6"),
        ({"search": ["steps=4,6", "weight_decay=0.1,0.3"]}, {"epochs": 1}, None, "13"),
        ({"search": ["steps=4,6", "weight_decay=0.1,0.3"]}, {"steps": 7}, None, "7"),
        ({"steps": 2}, {}, {"steps": 6, "weight_decay": 0.3}, "6"),
    ],
)
def test_a_resumed_run_keeps_what_a_search_found(
    tiny, tmp_path, monkeypatch, without_steps, asked, length, found, says
):
    """What config.json holds, whatever became of the search's folder; another length replaces the steps found."""
    asked, seen = {"batch_size": 96, "steps": None, **asked}, []
    settings = Settings(model=tiny, dataset="digits", **asked)
    recipe = {"batch_size": 96, "learning_rate": 0.004, "steps": 6, "weight_decay": 0.3}
    begun = {"settings": vars(settings), "recipe": recipe, "total_steps": 6}
    (tmp_path / "config.json").write_text(json.dumps(begun))
    monkeypatch.setattr(Checkpoints, "steps", lambda _: [5])
    monkeypatch.setattr(RunFolder, "check", lambda *_: None)
    monkeypatch.setattr(train, "fit", lambda run, model, recipe, *_: seen.append(recipe.weight_decay))
    _, said = run(tiny, tmp_path, resume=True, found=found, **asked | length)
    assert f"goes on at step 5 of {says}, " in said and seen == [0.3]


def test_the_search_keeps_its_development_set(tiny, tmp_path, monkeypatch, without_steps):
    """With --split train+validation rates are tried on `train` and judged on `validation`; the run has both."""
    loaded, load = [], data.load
    monkeypatch.setattr(data, "load", lambda name, split, **given: loaded.append(split) or load(name, split, **given))
    found = {"learning_rate": 0.004}
    result = lambda recipe, *_, **__: training.SearchResult(recipe.with_(**found), found, ((found, 0.5),))  # noqa: E731
    monkeypatch.setattr(training, "search_recipe", result)
    _, said = run(tiny, tmp_path / "run", split="train+validation", grid_search=True)
    assert sorted(loaded) == ["train", "train+validation", "validation"]
    assert "at a learning rate of 0.004:" in said


@pytest.mark.slow
def test_what_a_run_says_before_it_begins(tiny, tmp_path, without_steps):
    _, said = run(tiny, tmp_path / "run", steps=6, batch_size=64, microbatches=4)
    assert "1,293 to train on, 144 held out" in said
    assert "6 steps of 64 images, in 4 microbatches, at a learning rate of 0.03: 384 images seen, 0.297 epochs" in said
    assert "That is 0.0099 of the 38,784 images that the recipe sees at its own length." in said
    _, said = run(tiny, tmp_path / "long", steps=None, epochs=3.1)
    assert (
        "That is" not in said
        and "125 steps of 32 images at a learning rate of 0.03: 4,000 images seen, 3.09 epochs" in said
    )


def test_a_run_with_lora_counts_the_parameters_of_its_files(tiny, tmp_path, without_steps):
    """Its factors, which the files do not have, are not among them."""
    _, said = run(tiny, tmp_path / "run", lora=2)
    total = zoo.load(tiny, num_classes=10).count_params()
    assert f"tiny.keras: {total:,} parameters" in said and f"of {total:,} weights train" in said


def test_what_cannot_be_is_refused_before_it_begins(tiny, tmp_path):
    with pytest.raises(ConfigError, match="microbatches must divide the batch of each replica. Received: 5, for 32"):
        run(tiny, tmp_path / "run", microbatches=5)
    with pytest.raises(ConfigError, match="split must be train or train"):
        run(tiny, tmp_path / "run", split="test")


def test_fine_tuning_starts_from_a_new_head(tmp_path):
    """Section 3.2, with as many classes as the checkpoint has too; but for the checkpoint's own classes, by name."""
    own = zoo.load("ViT-Test/4", weights=None, image_size=8, num_layers=1, labels=tuple("abcdefghij"))
    own.get_layer("head").kernel.assign(np.ones((64, 10)))
    zoo.save(own, tmp_path / "own.keras")
    settings = Settings(model=str(tmp_path / "own.keras"), dataset="digits")

    def head(names):
        examples = SimpleNamespace(
            num_examples=1293, class_names=names, multi_label=False, masked=False, objective=None
        )
        model = plan.load_model(settings, plan.recipe_for(settings, examples), examples)
        assert model.labels == names
        return model.get_layer("head").kernel.numpy()

    assert not head(tuple("0123456789")).any() and not head(tuple("jihgfedcba")).any()
    assert head(tuple("abcdefghij")).all()


def test_a_model_of_several_classes_learns_one_class_of_the_same_names(tmp_path):
    """Softmax is the loss then, so the probabilities that the run gives sum to 1; the head stays."""
    tags = zoo.load("ViT-Test/4", weights=None, num_layers=1, labels=("cat", "dog"), probabilities="sigmoid")
    tags.get_layer("head").bias.assign([3.0, 2.0])
    zoo.save(tags, tmp_path / "tags.keras")
    settings = Settings(model=str(tmp_path / "tags.keras"), dataset="digits")
    examples = SimpleNamespace(
        num_examples=99, class_names=("cat", "dog"), multi_label=False, masked=False, objective=None
    )
    model = plan.load_model(settings, plan.recipe_for(settings, examples), examples)
    found = dict(keras_vit.predict(model, np.zeros((8, 8, 3), "uint8")))
    assert found == pytest.approx({"cat": 1 / (1 + np.exp(-1)), "dog": 1 / (1 + np.exp(1))}, abs=1e-6)


def test_examples_limits_the_training_images_alone():
    splits = plan.load_splits(Settings(dataset="digits", model="ViT-Test/4", examples=50, test=True))
    assert [split.num_examples for split in splits] == [50, 144, 360]


def test_ablations_of_position_embeddings_are_options_of_pretraining(planned):
    """Appendix D.4; a checkpoint to fine-tune has its own."""
    line = "--data cifar10 --position-embedding 2d --position-embedding-at every-layer-shared --image-size 32"
    examples = SimpleNamespace(class_names=tuple("abc"), multi_label=False, masked=False, objective=None)
    recipe, settings = planned(f"pretrain --model ViT-Test/4 {line}")
    config = plan.load_model(settings, recipe, examples).config
    assert (config.position_embedding, config.position_embedding_at) == ("2d", "every-layer-shared")
    recipe, settings = planned(f"finetune --model ViT-B/16 {line}")
    with pytest.raises(ConfigError, match="position_embedding is '1d' in the checkpoint"):
        plan.load_model(settings, recipe, examples)
