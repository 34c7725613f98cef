"""What a training command trains, before it begins: the data, the recipe and the model that the settings mean."""

from typing import NamedTuple

from keras_vit import data, training, zoo
from keras_vit.data.augment.rows import find_augmentation
from keras_vit.errors import ConfigError
from keras_vit.trainers import choices, kit
from keras_vit.trainers.masked_patches import load_masked_patch_model, objective_of
from keras_vit.trainers.settings import Settings
from keras_vit.training.recipe_rows import EPOCHS
from keras_vit.training.scaling import choose_batch_size


class Splits(NamedTuple):
    """The `Examples` of a run; None for what it does not hold out, or does not test on."""

    train: data.Examples
    held_out: data.Examples | None
    test: data.Examples | None


def load_splits(settings):
    """The splits that the settings ask for.

    Raises:
        DataError: when the dataset does not have them.
    """
    objective = objective_of(settings)

    def load(split, **subset):
        return data.load(settings.dataset, split, **subset).with_objective(objective)

    return Splits(
        train=load(settings.split, examples=settings.examples, seed=settings.seed, without=settings.without),
        held_out=load("validation") if settings.split == "train" else None,
        test=load("test") if settings.test else None,
    )


def require_batch(examples, batch_size):
    """Refuses a batch of more images than there are."""
    if batch_size > examples.num_examples:
        raise ConfigError(
            f"A batch of {batch_size:,} images is larger than {examples.name}, which has {examples.num_examples:,} "
            f"to train on. Choose a batch size of at most {examples.num_examples}."
        )


def recipe_for(settings: Settings, examples: data.Examples, replicas: int = 1) -> training.Recipe:
    """The recipe, scaled to the data, the batch size and the length asked for; image_size None is the model's own.

    A dataset that the paper does not train on takes 30 epochs at the model's own size, unless told otherwise.
    """
    chosen, paper = choices.choose_recipe(settings.dataset, settings.model, settings.pretrain, settings.objective)
    name = settings.recipe or chosen
    given = {"examples": examples.num_examples, "model": settings.model.partition(":")[0]}
    if objective := objective_of(settings):
        given |= objective.recipe_changes
    if name.startswith("bit-hyperrule"):
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
    if examples.multi_label:
        given["loss"] = "sigmoid"
    return training.recipe(name, batch_size=batch, steps=settings.steps, epochs=epochs, image_size=size, **given)


def load_model(settings, recipe, examples):
    """The model with a head for the dataset's classes, or around it masked patch prediction.

    Built as the recipe asks; the settings decide which weights train.
    """
    arguments = {"dtype": settings.precision, **recipe.model_arguments}
    if settings.position_embedding_at is not None:
        arguments["position_embedding_at"] = settings.position_embedding_at
    if settings.objective == "masked-patches":
        return load_masked_patch_model(settings, arguments)
    arguments["labels"] = examples.class_names
    if examples.multi_label:
        arguments["probabilities"] = "sigmoid"
    if settings.pretrain:
        model = zoo.load(settings.model, weights=None, **arguments)
    else:
        model = zoo.load(choices.choose_checkpoint(settings.model), **arguments)
    return kit.prepare_model(settings, model)


def count_microbatches(settings, recipe, model):
    """In how many parts each replica's batch is computed; the model is made in the strategy's scope.

    Raises:
        ConfigError: when the number asked for does not divide the batch.
    """
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
    """The augmentation asked for, else the recipe's; None, the dataset's own, where crops or mirrors change labels."""
    own = find_augmentation(examples.augmentation)
    return settings.augmentation or (None if own.restricted else recipe.augmentation)
