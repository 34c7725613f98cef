"""Searches a grid of the recipe's fields on the development set, for `grid_search` and `search`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from keras_vit import data, training
from keras_vit.data.augment.augmentations import find_augmentation
from keras_vit.errors import ConfigError
from keras_vit.trainers.plan import (
    compile_arguments,
    count_microbatches,
    evaluation_batches,
    load_model,
    objective_of,
    training_batches,
)
from keras_vit.trainers.settings import Settings, parse_search
from keras_vit.training.grid import SearchResult

# {field of a recipe: the settings that decide it, where they have other names}
SETTINGS_OF = {"steps": ("steps", "epochs"), "stochastic_depth_rate": ("stochastic_depth",)}


def make_grid(settings, recipe):
    """{field: values} that the settings ask for; learning rates of the source are scaled as the recipe's is."""
    grid = parse_search(settings.search or [])
    for name in grid:
        for own in SETTINGS_OF.get(name, (name,)):
            if getattr(settings, own, None) is not None:
                raise ConfigError(f"{own} is given, and {name} searched for. Leave out one of the two.")
    if not settings.grid_search:
        return grid
    if "learning_rate" in grid or settings.learning_rate is not None:
        raise ConfigError("grid_search tries the recipe's learning rates: give no others, or leave it out.")
    if not recipe.learning_rates:
        raise ConfigError(
            f"{recipe.name} lists no learning rates to search. Give some: search=['learning_rate=0.01,0.03']."
        )
    paper = training.RECIPES[recipe.name]
    rates = [rate * recipe.learning_rate / paper.learning_rate for rate in recipe.learning_rates]
    return {"learning_rate": rates, **grid}


def describe_point(point):
    """A point in words: "learning_rate 0.003, dropout_rate 0.1"."""
    return ", ".join(
        f"{name} {value:.2g}" if isinstance(value, float) else f"{name} {value}" for name, value in point.items()
    )


def load_examples(settings: Settings) -> tuple[data.Examples, data.Examples]:
    """(examples to train on, examples to evaluate): parts of train and validation, whatever the run trains on. A list
    of duplicates is for one split, so one for train+validation applies only to the run, not to the search.

    Raises:
        DataError: when nothing is held out of the training examples.
    """
    objective, examples = objective_of(settings), settings.examples
    left_out: dict[str, Any] = {"without": settings.without} if settings.split == "train" else {}
    train = data.load(settings.dataset, "train", **left_out)
    if examples and examples < train.num_examples:
        train = data.load(settings.dataset, "train", examples=examples, seed=settings.seed, **left_out)
    return train.with_objective(objective), data.load(settings.dataset, "validation").with_objective(objective)


def search_fields(
    settings: Settings,
    recipe: training.Recipe,
    folder: Path,
    tell: Callable[[str], object],
    every: int,
    grid: dict,
) -> SearchResult:
    """Finds the best point of a grid on the development set. As in Appendix B.1.1, the search never trains on the
    examples that it evaluates, whatever the run itself trains on. Call it in the strategy's scope; `folder` keeps the
    scores, so that a killed search can continue.

    Raises:
        ConfigError: when there is nothing to try, or a value is invalid.
        DataError: when nothing is held out of the training examples.
    """
    examples, held_out = load_examples(settings)
    if examples.multi_label:
        raise ConfigError("A search ranks by accuracy, and images of several classes have none.")
    if settings.segments:
        raise ConfigError("A search ranks by the accuracy of images, and masks have none. Compare runs by their IoU.")
    if settings.patch_target == "pixels":
        raise ConfigError("A search ranks by accuracy, and pixels have none. Predict mean-colour or colours-4x4.")
    if "augmentation" in grid and find_augmentation(examples.augmentation).restricted:
        raise ConfigError(f"The images of {examples.name} keep their own augmentation. Search other fields.")
    microbatches = count_microbatches(settings, recipe, load_model(settings, recipe, examples))

    def prepare(candidate):
        model = load_model(settings, candidate, examples)
        batches = training_batches(settings, candidate, examples, model)
        return training.Trial(model, batches, evaluation_batches(held_out, candidate, model, microbatches))

    def tell_score(point, accuracy):
        tell(f"{describe_point(point)}: {'diverged' if accuracy is None else f'{accuracy:.1%}'}")

    tell(f"Training once at each point of {', '.join(grid)}, on {examples.num_examples:,} images.")
    found = training.search_recipe(
        recipe,
        grid,
        prepare,
        folder,
        every=every,
        seed=settings.seed,
        settings={**settings.as_recorded(), **settings.digests()},
        tell=tell_score,
        microbatches=microbatches,
        **compile_arguments(settings, examples),
    )
    tell(f"Best on the {held_out.num_examples:,} images of the development set: {describe_point(found.best)}.")
    return found
