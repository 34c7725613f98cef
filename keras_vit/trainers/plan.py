"""Plans a training: checks that it can begin, and makes its data, recipe and model.

Importing this imports no Keras.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

from keras_vit import data, training, zoo
from keras_vit.data.augment.augmentations import find_augmentation
from keras_vit.data.datasets.schemes import require_dataset, would_read
from keras_vit.errors import ConfigError, quote_some
from keras_vit.models.variants import VARIANTS, variant
from keras_vit.trainers import choices
from keras_vit.trainers.settings import BACKBONE, Settings
from keras_vit.training.recipe_rows import EPOCHS
from keras_vit.training.runs.run_folder import RunFolder, model_of
from keras_vit.training.scaling import choose_batch_size
from keras_vit.zoo.names import registry


def require_outside_dataset(out, dataset):
    """Refuses a folder to write inside the dataset's folder, where it would be read as a class."""
    if would_read(dataset, out):
        raise ConfigError(
            f"The folder {out} lies among the class folders of {dataset}, and would be read as one. "
            "Choose a folder outside of it."
        )


def require_variant(model):
    """Refuses a model that has weights: pre-training begins with random ones."""
    if model not in VARIANTS and (model.partition(":")[0] in VARIANTS or Path(model).exists()):
        raise ConfigError(
            f"Pre-training begins with random weights, not with those of {model}. Give a variant, such as ViT-B/16, or "
            "use finetune."
        )
    variant(model)


def resolve(settings: Settings) -> Settings:
    """Replaces a run's folder in the settings by the file of its weights; refuses an unknown dataset or model."""
    require_dataset(settings.dataset)
    settings = dataclasses.replace(settings, model=str(model_of(settings.model)))
    if settings.teacher is not None:
        settings = dataclasses.replace(settings, teacher=str(model_of(settings.teacher)))
        registry.resolve(str(settings.teacher))
    if settings.pretrain:
        require_variant(settings.model)
    else:
        registry.resolve(choices.choose_checkpoint(settings.model))
    return settings


def prepare(settings: Settings, folder: RunFolder, resume: bool) -> Settings:
    """Does what `resolve` does, and refuses a folder in which no run can begin or, with `resume`, continue.

    The folder keeps the digests that are computed here, for `Run`.
    """
    require_outside_dataset(folder.path, settings.dataset)
    folder.check(resume)
    return resolve(settings)


def objective_of(settings):
    """The `MaskedPatches` that the settings ask for (Appendix B.1.2), or None for labels."""
    if settings.objective != "masked-patches":
        return None
    from keras_vit.masked_patches.model import require_patchwise

    config = variant(settings.variant).config
    require_patchwise(config)
    told = {"target": settings.patch_target, "rate": settings.corruption_rate}
    return data.MaskedPatches(config.patch_size, **{name: value for name, value in told.items() if value is not None})


class Splits(NamedTuple):
    """The `Examples` of a run; None if it holds none out, or does not test."""

    train: data.Examples
    held_out: data.Examples | None
    test: data.Examples | None


def load_splits(settings):
    """The splits that the settings ask for."""
    objective = objective_of(settings)

    def load(split, **subset):
        return data.load(settings.dataset, split, **subset).with_objective(objective)

    return Splits(
        train=load(settings.split, examples=settings.examples, seed=settings.seed, without=settings.without),
        held_out=load("validation") if settings.split == "train" else None,
        test=load("test") if settings.test else None,
    )


def require_batch(examples, batch_size):
    """Refuses a batch larger than the dataset."""
    if batch_size > examples.num_examples:
        raise ConfigError(
            f"A batch of {batch_size:,} images is larger than {examples.name}, which has {examples.num_examples:,} "
            f"to train on. Choose a batch size of at most {examples.num_examples}."
        )


def recipe_for(settings: Settings, examples: data.Examples, replicas: int = 1) -> training.Recipe:
    """The recipe, scaled to the data and the requested batch size and length; image_size None is the model's own.

    For datasets that the paper does not use, the default is 30 epochs at the model's own size.
    """
    chosen, paper = choices.choose_recipe(settings.dataset, settings.model, settings.pretrain, settings.objective)
    name = settings.recipe or chosen
    given: dict[str, Any] = {"examples": examples.num_examples, "model": settings.variant}
    if examples.objective:
        given |= examples.objective.recipe_changes
    if name.casefold().startswith("bit-hyperrule"):
        given["original_size"] = examples.typical_size()
    row = training.recipe(name, **given)
    told = settings.recipe is not None or paper
    epochs, size, batch = settings.epochs, settings.image_size, settings.batch_size
    if not told and settings.steps is None and epochs is None:
        epochs = EPOCHS
    if told and size is None and row.image_size is not None:
        size = choices.round_to_patches(row.image_size, settings.model)
    if batch is None:
        batch = choose_batch_size(row.batch_size, examples.num_examples, paper, replicas)
    if settings.learning_rate is not None:
        given["learning_rate"] = settings.learning_rate
    if settings.stochastic_depth is not None:
        given["stochastic_depth_rate"] = settings.stochastic_depth
    if settings.position_embedding is not None:
        given["position_embedding"] = settings.position_embedding
    if settings.teacher is not None:
        given["label_smoothing"] = 0.0
    if examples.multi_label:
        given["loss"] = "sigmoid"
    if examples.masked:
        given |= {"loss": "pixels", "classifier": "patches", "representation_size": None}
    return training.recipe(name, batch_size=batch, steps=settings.steps, epochs=epochs, image_size=size, **given)


def load_model(settings, recipe, examples):
    """Loads the model with a head for the dataset's classes, or with masked patch prediction around it.

    The recipe decides how it is built, the settings which weights train. Call it in the strategy's scope.
    """
    arguments = {"dtype": settings.precision, **recipe.model_arguments}
    if settings.position_embedding_at is not None:
        arguments["position_embedding_at"] = settings.position_embedding_at
    if settings.objective == "masked-patches":
        encoder = zoo.load(settings.model, weights=None, num_classes=0, **arguments)
        return training.MaskedPatchModel(encoder, examples.objective.target, examples.objective.rate)
    arguments["labels"] = examples.class_names
    arguments["probabilities"] = "sigmoid" if examples.multi_label else "softmax"  # also where the head is kept
    if settings.pretrain:
        model = zoo.load(settings.model, weights=None, **arguments)
    else:
        model = zoo.load(choices.choose_checkpoint(settings.model), **arguments)
    if settings.freeze == BACKBONE:
        training.freeze(model, except_for=["pre_logits|head"])
    elif settings.freeze is not None:
        training.freeze_first(model, int(settings.freeze))
    if settings.lora is not None:
        training.enable_lora(model, settings.lora, settings.seed)
    return model


def count_microbatches(settings, recipe, model):
    """The number of microbatches of each replica's batch; the model was made in the strategy's scope."""
    replicas = model.distribute_strategy.num_replicas_in_sync
    if settings.microbatches is None:
        return training.choose_microbatches(recipe.batch_size, model.preprocessing.image_size, replicas)
    each = recipe.batch_size // replicas
    if each % settings.microbatches:
        raise ConfigError(
            f"microbatches must divide the batch of each replica. Received: {settings.microbatches}, for {each} images."
        )
    return settings.microbatches


def augmentation_for(settings, recipe, examples):
    """The requested augmentation, else the recipe's; None (the dataset's own) if crops or mirrors change labels."""
    own = find_augmentation(examples.augmentation)
    return settings.augmentation or (None if own.restricted else recipe.augmentation)


def compile_arguments(settings, examples):
    """The arguments of `recipe.compile` for these settings and data."""
    metrics: list | None = [training.MeanAveragePrecision(examples.num_classes)] if examples.multi_label else None
    if examples.masked:
        import keras

        overlap = keras.metrics.MeanIoU(examples.num_classes, "mean_iou", "float32", sparse_y_pred=False)
        metrics = [training.Accuracy(), overlap]
    return {"layer_decay": settings.layer_decay, "remat": settings.remat, "metrics": metrics}


def monitor_of(examples):
    """The name of the metric that chooses the best weights."""
    if examples.objective is not None:
        return "val_loss"
    if examples.masked:
        return "val_mean_iou"
    return "val_mean_average_precision" if examples.multi_label else "val_accuracy"


def weights_of_classes(settings, examples):
    """The weight of each class; None if all images count alike."""
    if settings.class_weights is None:
        return None
    counts = examples.class_counts()
    if counts is None or examples.multi_label:
        why = "has several classes per image" if examples.multi_label else "is read from disk as it is trained on"
        raise ConfigError(
            f"class_weights needs data with one class per image, counted beforehand; {examples.name} {why}. Leave "
            "it out."
        )
    return training.balanced_weights(counts)


def load_teacher(settings, examples):
    """The model to learn from, or None."""
    if settings.teacher is None:
        return None
    teacher = zoo.load(settings.teacher)
    if list(teacher.labels or ()) != list(examples.class_names):
        raise ConfigError(
            f"The teacher must have the classes of {examples.name}, {quote_some(examples.class_names)}. "
            f"{settings.teacher} has {quote_some(teacher.labels) if teacher.labels else 'no names of classes'}. "
            "Fine-tune it on this dataset first."
        )
    return teacher


def training_batches(settings, recipe, examples, model):
    """A function from a step to the batches from that step on, for `Run.fit`, if requested with weights, or with the
    teacher's answers as labels."""
    augmentation = augmentation_for(settings, recipe, examples)
    weights, teacher = weights_of_classes(settings, examples), load_teacher(settings, examples)

    def batches(step):
        drawn = examples.train(
            recipe.batch_size,
            model.preprocessing,
            augmentation=augmentation,
            augment_on=settings.augment_on,
            seed=settings.seed,
            start=step,
        )
        drawn = drawn if weights is None else training.weigh_classes(drawn, weights)
        return drawn if teacher is None else training.with_answers(drawn, teacher, model.preprocessing)

    return batches


def evaluation_batches(examples, recipe, model, microbatches):
    """Batches of a split, each as large as a microbatch of training."""
    return examples.evaluation(recipe.batch_size // microbatches, model.preprocessing)
