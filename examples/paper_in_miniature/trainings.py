"""A training as data, and the workshop that does it once and keeps its weights."""

import hashlib
import json
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Literal

import keras

from examples.paper_in_miniature import fractals
from keras_vit import data, models, training, zoo
from keras_vit.files import write_whole
from keras_vit.models import ResNetConfig, ViTConfig

QUICK = {"steps": 2, "batch_size": 8, "warmup_steps": 0}
QUICK_EXAMPLES = 100


@dataclass(frozen=True, kw_only=True)
class Training:
    """What is trained, on what, from where.

    Args:
        config: of the model; with `masked` of an encoder, num_classes=0.
        recipe: how.
        task: the role of the dataset; "fractals" are made as they are needed.
        examples: how many of the split; None for all. The same seed chooses nested subsets.
        stratified: keeps the share of each class in a subset.
        start: the training whose weights it starts from, under a new head; None for random weights.
        new_positions: starts with random position embeddings, where `start` has trained ones.
        masked: predicts masked patches, without labels (Appendix B.1.2).
        seed: of the first weights, the subset and the order of the batches.
        finished: the name of weights that are there already, for `zoo.load`; nothing is trained.
    """

    config: ViTConfig | ResNetConfig
    recipe: training.Recipe
    task: Literal["pretraining", "transfer", "fractals"] = "pretraining"
    split: str = "train+validation"
    examples: int | None = None
    stratified: bool = False
    start: "Training | None" = None
    new_positions: bool = False
    masked: bool = False
    seed: int = 0
    finished: str | None = None


def describe(value):
    """A dataclass as JSON: its class, and the fields that differ from their defaults."""
    if not is_dataclass(value):
        return value
    changed = [field for field in fields(value) if getattr(value, field.name) != field.default]
    return {"class": type(value).__name__} | {field.name: describe(getattr(value, field.name)) for field in changed}


@dataclass(frozen=True)
class Workshop:
    """Where trainings find their data and leave their weights.

    Args:
        datasets: {role: name for `keras_vit.data.load`}.
        folder: of the weights, a file for each training that is done.
        quick: two small updates in place of each training, to see that everything works.
    """

    datasets: dict[str, str]
    folder: Path
    quick: bool = False

    def plan(self, wanted: Training, seed: int) -> Training:
        """The training, and the one it starts from, with that seed, and short where the workshop is quick."""
        start = wanted.start and self.plan(wanted.start, seed)
        wanted = replace(wanted, start=start, seed=seed)
        if not self.quick:
            return wanted
        examples = wanted.examples and min(wanted.examples, QUICK_EXAMPLES)
        return replace(wanted, recipe=replace(wanted.recipe, **QUICK), examples=examples, finished=None)

    def identify(self, wanted: Training) -> str:
        """Twelve digits that tell a training, and the datasets it is of, from every other."""
        kinds = {role: name.partition(":")[0] for role, name in self.datasets.items()}
        text = json.dumps([wanted.finished or describe(wanted), kinds], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def load_data(self, task: str, split: str, **choice) -> data.Examples:
        if task == "fractals":
            return fractals.load(split, count=QUICK_EXAMPLES if self.quick else fractals.HELD_OUT)
        return data.load(self.datasets[task], split, **choice)

    def load_training_data(self, wanted: Training) -> data.Examples:
        if wanted.task == "fractals":  # of more images than the training sees, those it sees
            return fractals.load(wanted.split, wanted.seed, min(wanted.examples, wanted.recipe.images_seen))
        choice = {"examples": wanted.examples, "seed": wanted.seed, "stratified": wanted.stratified}
        return self.load_data(wanted.task, wanted.split, **choice)

    def load_model(self, trained: Training, **changes) -> keras.Model:
        """The model of a training, which is done first if it is not."""
        return zoo.load(self.train(trained), **changes)

    def find(self, wanted: Training) -> tuple[Path, Path]:
        """Where a training's weights and its record are, or will be; it is done when the record is there."""
        stem = self.folder / self.identify(wanted)
        return stem.with_suffix(".keras"), stem.with_suffix(".json")

    def has(self, wanted: Training) -> bool:
        return wanted.finished is not None or self.find(wanted)[1].exists()

    def train(self, wanted: Training) -> Path | str:
        """The weights' name for `zoo.load`, of a training that is done now if it is not."""
        if wanted.finished:
            return wanted.finished
        path, record = self.find(wanted)
        if not record.exists():
            model = self.fit(wanted)
            self.folder.mkdir(parents=True, exist_ok=True)
            zoo.save(model, path)
            with write_whole(record) as temporary:
                temporary.write_text(json.dumps(describe(wanted), indent=1))
        return path

    def fit(self, wanted):
        examples = self.load_training_data(wanted)
        if wanted.start is not None:
            self.train(wanted.start)
        keras.utils.clear_session()
        keras.utils.set_random_seed(wanted.seed)
        model = self.prepare(wanted, examples.class_names)
        learner = training.MaskedPatchModel(model) if wanted.masked else model
        if wanted.masked:
            examples = examples.with_objective(learner.objective)
        recipe = wanted.recipe
        recipe.compile(learner)
        learner.run_eagerly = self.quick
        batches = examples.train(
            recipe.batch_size, model.preprocessing, augmentation=recipe.augmentation, seed=wanted.seed
        )
        learner.fit(batches, steps_per_epoch=recipe.total_steps, verbose=0)
        return model

    def prepare(self, wanted, class_names):
        """The model as its training begins."""
        if wanted.start is None:
            return models.build(wanted.config, labels=class_names if wanted.config.num_classes else None)
        model = self.load_model(wanted.start, image_size=wanted.config.image_size, labels=class_names, head="new")
        if wanted.new_positions:
            fresh = models.build(model.config)
            for name in model.config.position_layers:
                model.get_layer(name).set_weights(fresh.get_layer(name).get_weights())
        return model
