"""The fine-tuning kit as the training commands use it: what of the model learns, and what each class counts."""

import numpy as np

from keras_vit import evaluation, training
from keras_vit.data.datasets.image_files import quote_some
from keras_vit.errors import ConfigError
from keras_vit.trainers.outcome import load_best
from keras_vit.trainers.settings import BACKBONE, Settings

UNEQUAL = 10  # times as many images in one class as in another


def prepare_model(settings: Settings, model):
    """Freezes layers, adds LoRA and sets rematerialization as asked; in the strategy's scope, before `compile`."""
    if settings.freeze == BACKBONE:
        training.freeze(model, except_for=[name for name in ("pre_logits", "head") if has_layer(model, name)])
    elif settings.freeze is not None:
        training.freeze_first(model, int(settings.freeze))
    if settings.lora is not None:
        training.enable_lora(model, settings.lora, settings.seed)
    model.remat = settings.remat
    return model


def has_layer(model, name):
    return any(layer.name == name for layer in model.layers)


def compile_arguments(settings, examples):
    """What the settings and the data ask of `recipe.compile`."""
    metrics = [training.MeanAveragePrecision(examples.num_classes)] if examples.multi_label else None
    return {"layer_decay": settings.layer_decay, "remat": settings.remat, "metrics": metrics}


def monitor_of(examples):
    """The metric of the best weights."""
    if examples.objective is not None:
        return "val_loss"
    return "val_mean_average_precision" if examples.multi_label else "val_accuracy"


def weights_of_classes(settings, examples):
    """The weight of each class; None where all images count alike.

    Raises:
        ConfigError: when the data cannot be balanced.
    """
    if settings.class_weights is None:
        return None
    counts = examples.class_counts()
    if counts is None or examples.multi_label:
        why = "has several classes per image" if examples.multi_label else "is read from disk as it is trained on"
        raise ConfigError(
            f"--class-weights needs data with one class per image, counted beforehand; {examples.name} {why}. Leave "
            "--class-weights out."
        )
    return training.balanced_weights(counts)


def weigh(settings, examples, batches):
    """Batches for training, with the weights of the examples where the settings ask for them."""
    weights = weights_of_classes(settings, examples)
    return batches if weights is None else training.weigh_classes(batches, weights)


def describe_kit(settings: Settings, model, examples) -> list[str]:
    """What the kit does, and what the classes are like, in sentences."""
    trained, total = training.count_trainable(model)
    said = []
    if trained < total:
        how = f"LoRA of rank {settings.lora}: " if settings.lora else ""
        said.append(f"{how}{trained:,} of {total:,} weights train ({trained / total:.1%}).")
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
            "--class-weights balanced lets each class count alike."
        )
    return said


def judge_multi_label(run, model, judged, batch_size, name, console):
    """The mean average precision of the best weights, which the model then has; says it."""
    which = load_best(model, run.folder)
    found = evaluation.evaluate_multi_label(model, judged, batch_size)
    console.print(
        f"{name} mean average precision of {which}: {found.mean_average_precision:.1%} of {found.count:,} images.",
        soft_wrap=True,
    )
    return found.mean_average_precision
