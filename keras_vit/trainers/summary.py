"""Sentences printed before a training begins, on its model, data and length."""

import dataclasses

import numpy as np

from keras_vit import training
from keras_vit.errors import quote_some, without_secrets
from keras_vit.trainers.choices import choose_checkpoint
from keras_vit.trainers.plan import recipe_for

UNEQUAL = 10  # times as many images in one class as in another


def describe_splits(splits):
    """A sentence on the number of images in each split."""
    train, held_out, test = splits
    said = [f"{train.num_examples:,} to train on"]
    said += [f"{held_out.num_examples:,} held out"] if held_out else ["none held out: the last weights are the run's"]
    said += [f"{test.num_examples:,} to test on, once, at the end"] if test else []
    return ", ".join(said)


def pluralize(number, noun):
    """ "1 step", "2,000 steps": the number, to three digits unless it is whole, and the noun."""
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
    trained, total = training.count_trainable(model)
    said = []
    if trained < total:
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
    if settings.class_weights:
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
    said = [f"{source}: {model.count_params():,} parameters, {size} pixels, {task}."]
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
