"""What a training reports: the plan in sentences before it begins; at its end the evaluation of its best weights."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path

import numpy as np

from keras_vit import evaluation, training
from keras_vit.errors import ConfigError, quote_some, without_secrets
from keras_vit.trainers.choices import choose_checkpoint
from keras_vit.trainers.plan import recipe_for
from keras_vit.training.runs.history import find_last_epoch, read_rows
from keras_vit.training.runs.run_folder import CHECKPOINTS, EVENTS, FILES, find_row

UNEQUAL = 10  # times as many images in one class as in another
DRAWN = 8  # images in masked_patches.png and masks.png
# The files and folders that a run writes, and their contents.
WRITTEN = {
    **FILES,
    f"{CHECKPOINTS}/": "the checkpoints from which a resumed run continues",
    f"{EVENTS}/": "the metrics, for TensorBoard",
    "search/": "scores.json: the points of the search, and the accuracy of each",
}


def describe_splits(splits):
    """A sentence on the number of images in each split."""
    train, held_out, test = splits
    said = [f"{train.num_examples:,} to train on"]
    said += [f"{held_out.num_examples:,} held out"] if held_out else ["none held out: the last weights are the run's"]
    said += [f"{test.num_examples:,} to test on, once, at the end"] if test else []
    return ", ".join(said)


def pluralize(number, noun):
    """The number, to three digits unless it is whole, and the noun: "1 step", "2,000 steps"."""
    figure = f"{number:,}" if isinstance(number, int) else f"{number:.3g}"
    return f"{figure} {noun}{'' if figure == '1' else 's'}"


def count_epochs(recipe, examples):
    """The number of epochs; a whole number if no other number of steps comes nearer to it."""
    epochs = recipe.images_seen / examples.num_examples
    whole = round(epochs)
    return whole if round(whole * examples.num_examples / recipe.batch_size) == recipe.total_steps else epochs


def describe_plan(recipe, microbatches, examples):
    """A sentence on the recipe and length of a training."""
    cut = f", in {microbatches} microbatches," if microbatches > 1 else ""
    return (
        f"{recipe.name}: {recipe.optimizer}, {pluralize(recipe.total_steps, 'step')} of "
        f"{pluralize(recipe.batch_size, 'image')}{cut} at a learning rate of {recipe.learning_rate:.2g}: "
        f"{pluralize(recipe.images_seen, 'image')} seen, "
        f"{pluralize(count_epochs(recipe, examples), 'epoch')} "
        f"({recipe.source.partition(';')[0]})."
    )


def describe_objective(model):
    """The corrupted patches and the target, as the end of a sentence."""
    rows, columns = model.config.grid
    count = model.objective.count_corrupted(model.config.image_size)
    return f"{count} of {rows * columns} patches corrupted to predict them ({model.objective.target})"


def describe_kit(settings, model, examples):
    """Sentences on what the fine-tuning kit does, and on the classes."""
    said = []
    if model.non_trainable_weights:
        trained, total = training.count_trainable(model)
        how = f"LoRA of rank {settings.lora}: " if settings.lora else ""
        said.append(f"{how}{trained:,} of {total:,} weights train ({trained / total:.1%}).")
    if settings.teacher is not None:
        said.append(f"Distillation: the answers of {without_secrets(settings.teacher)} are learned in place of labels.")
    if settings.layer_decay is not None:
        said.append(f"Layer decay: each layer learns at {settings.layer_decay:g} times the rate of the one above it.")
    if settings.remat:
        said.append("Rematerialization: the blocks are computed again for the gradient, in less memory and more time.")
    return said + describe_classes(settings, examples)


def describe_classes(settings, examples):
    """Sentences on classes with few images, if there are any."""
    counts = examples.class_counts()
    if counts is None:
        return []
    names, said = np.asarray(examples.class_names), []
    if examples.multi_label:
        said.append(f"Images have {counts.sum() / examples.num_examples:.2g} classes on average: sigmoid loss.")
    single = names[counts == 1].tolist()
    if single:
        said.append(f"Classes with a single image to train on: {quote_some(single)}. Add more.")
    few, most = counts.argmin(), counts.argmax()
    ratio = counts[most] / max(counts[few], 1)
    if settings.class_weights and ratio > 1:
        said.append(
            f"Classes have {counts[few]:,} ({names[few]}) to {counts[most]:,} ({names[most]}) images: "
            f"balanced, one of {names[few]} counts {ratio:.3g} times one of {names[most]}."
        )
    elif ratio >= UNEQUAL and not examples.multi_label:
        said.append(
            f"Classes are unequal: {counts[few]:,} images of {names[few]}, {counts[most]:,} of {names[most]}. "
            "class_weights='balanced' lets each class count alike."
        )
    return said


def describe_training(settings, model, recipe, splits):
    """All sentences, in order."""
    name = without_secrets(settings.model)
    source = name if settings.pretrain else choose_checkpoint(name)
    size = "x".join(map(str, model.config.image_size or ("any",)))
    task = describe_objective(model) if splits.train.objective else f"{splits.train.num_classes} classes"
    said = [f"{source}: {training.count_trainable(model)[1]:,} parameters, {size} pixels, {task}."]
    if source != name:
        said.append(f"{name} starts from {source}, pre-trained and not yet fine-tuned; name another tag for others.")
    said.append(f"Images: {describe_splits(splits)}.")
    said.append(describe_plan(recipe, model.microbatches, splits.train))
    said += describe_kit(settings, model, splits.train)
    full = recipe_for(dataclasses.replace(settings, steps=None, epochs=None), splits.train)
    if recipe.images_seen < full.images_seen / 10:
        said.append(
            f"That is {recipe.images_seen / full.images_seen:.2g} of the {full.images_seen:,} images that the recipe "
            "sees at its own length."
        )
    return said


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """The result of a training.

    Args:
        folder: folder of the run.
        epochs: number of epochs done.
        best_epoch: epoch of the evaluated weights; None for those of the last step.
        judged_by: "test", "validation", or None if nothing was held out or tested on.
        metric: "accuracy", "mean_average_precision", "mean_iou" or, for pixels of masked patches, "loss"; None if not
            evaluated.
        score: value of the metric; accuracy, precision and IoU from 0 to 1.
        interval: (lowest, highest) accuracy of the 95 % confidence interval; None for other metrics.
        files: {name in the folder: its description}.
        search: the `keras_vit.training.SearchResult` of a run with a search: the `best` fields of the recipe, the
            `scores` of all points; else None.
    """

    folder: Path
    epochs: int
    best_epoch: int | None
    judged_by: str | None
    metric: str | None
    score: float | None
    interval: tuple[float, float] | None
    files: dict[str, str]
    search: training.SearchResult | None = None

    @property
    def accuracy(self) -> float | None:
        """The share of correct answers; None if another metric, or none, was measured."""
        return self.score if self.metric == "accuracy" else None


def judge_classes(run, model, examples, batch_size):
    """("accuracy", its value, its interval, a sentence) of the model; writes the mistakes."""
    found = evaluation.collect_predictions(model, examples.evaluation(batch_size, model.preprocessing))
    if not len(found.labels):
        raise ConfigError(
            f"None of the images of {examples.name} ({examples.split}) can be read, so nothing judges the run; its "
            "weights are written. Replace the images, and resume it."
        )
    names, paths = examples.class_names, examples.paths()
    run.write(model, "mistakes.png", partial(evaluation.draw_mistakes, found, names))
    if paths is not None:
        run.write(model, "mistakes.csv", partial(evaluation.write_mistakes, found, names, paths))
    share = evaluation.Share(int(np.sum(found.labels == found.predicted)), len(found.labels))
    return "accuracy", share.value, share.interval, str(share)


def judge_several_classes(model, examples, batch_size):
    """Like `judge_classes`, for images with several classes."""
    found = evaluation.evaluate_multi_label(model, examples, batch_size)
    value = found.mean_average_precision
    return "mean_average_precision", value, None, f"{value:.1%} of {found.count:,} images"


def judge_masks(run, model, examples, batch_size):
    """Like `judge_classes`, for images with a class per pixel; draws the worst."""
    found = evaluation.mean_iou(model, examples, batch_size, keep=DRAWN)
    run.write(model, "masks.png", partial(evaluation.draw_masks, found))
    return "mean_iou", found.mean_iou, None, f"{found.mean_iou:.1%} of {found.images:,} images"


def finish_masked_patches(run, model, shown, judged, batch_size):
    """Writes the whole model, and a picture of its predictions for `shown`; returns (metric, value) or (None, None)."""
    found = {}
    if judged:
        found = model.evaluate(judged.evaluation(batch_size, model.preprocessing), verbose=0, return_dict=True)
    run.write(model, "masked_patches.keras", model.save)
    inputs, targets, _ = next(iter(shown.evaluation(DRAWN, model.preprocessing)))
    predictions = model(inputs, training=False)
    run.write(model, "masked_patches.png", partial(evaluation.draw_masked_patches, model, inputs, targets, predictions))
    metric = next((name for name in ("accuracy", "loss") if name in found), None)
    return metric, found.get(metric)


def judge(run, model, recipe, splits, tell, search):
    """Evaluates the best weights of a run and draws their mistakes; returns its `TrainingResult`."""
    judged, name = splits.test or splits.held_out, "Test" if splits.test else "Held-out"
    epochs, batch_size = find_last_epoch(read_rows(run.folder / "metrics.csv")), recipe.batch_size // model.microbatches
    metric = score = interval = best = None
    if splits.train.objective:
        metric, score = finish_masked_patches(run, model, judged or splits.train, judged, batch_size)
        if metric == "accuracy":
            tell(f"{name} accuracy of the corrupted patches' colours after the last step: {score:.1%}.")
        elif metric:
            tell(f"{name} error of the corrupted patches' pixels after the last step, squared: {score:.4f}.")
    elif judged:
        path = run.folder / "best.weights.npz"
        if (row := find_row(path)) is not None and path.is_file():
            training.load_weights(model, path)
            best = row["epoch"]
        if splits.train.multi_label:
            metric, score, interval, said = judge_several_classes(model, judged, batch_size)
        elif splits.train.masked:
            metric, score, interval, said = judge_masks(run, model, judged, batch_size)
        else:
            metric, score, interval, said = judge_classes(run, model, judged, batch_size)
        which = f"epoch {best}, the best of {epochs}" if best is not None else "the last step"
        tell(f"{name} {metric.replace('_', ' ').replace('iou', 'IoU')} of {which}: {said}.")
    if skipped := sum(len(split.unreadable.names) for split in splits if split):
        tell(f"Images that cannot be read, and were skipped: {skipped}.")
    return TrainingResult(
        folder=run.folder,
        epochs=epochs,
        best_epoch=best,
        judged_by=judged.split if judged else None,
        metric=metric,
        score=score,
        interval=interval,
        files={name: meaning for name, meaning in WRITTEN.items() if (run.folder / name).exists()},
        search=search,
    )
