"""What `--grid-search` and `--search` try before a training: a grid of the recipe's fields, on the development set."""

from pathlib import Path

from keras_vit import data, training
from keras_vit.console import Console
from keras_vit.data.augment.rows import find_augmentation
from keras_vit.errors import ConfigError
from keras_vit.trainers import kit
from keras_vit.trainers.checks import parse_search
from keras_vit.trainers.masked_patches import objective_of
from keras_vit.trainers.plan import augmentation_for, count_microbatches, load_model
from keras_vit.trainers.settings import Settings
from keras_vit.training.search import SearchResult

SEARCH = "search"  # folder of a run


def make_grid(settings, recipe):
    """{field: values} that the settings ask for; the source's learning rates, in proportion to the recipe's own.

    Raises:
        ConfigError: where a field is both given and searched for, or the recipe lists no rates.
    """
    grid = parse_search(settings.search or [])
    for name in grid:
        if getattr(settings, name, None) is not None:
            raise ConfigError(f"{name} is given and searched for. Leave out one of the two.")
    if not settings.grid_search:
        return grid
    if "learning_rate" in grid or settings.learning_rate is not None:
        raise ConfigError("--grid-search tries the recipe's learning rates: give no others, or leave it out.")
    if not recipe.learning_rates:
        raise ConfigError(f"{recipe.name} lists no learning rates to search. Give some: --search learning_rate=...")
    paper = training.RECIPES[recipe.name]
    rates = [rate * recipe.learning_rate / paper.learning_rate for rate in recipe.learning_rates]
    return {"learning_rate": rates, **grid}


def describe_point(point):
    """ "learning_rate 0.003, dropout_rate 0.1"."""
    return ", ".join(
        f"{name} {value:.2g}" if isinstance(value, float) else f"{name} {value}" for name, value in point.items()
    )


def load_examples(settings: Settings) -> tuple[data.Examples, data.Examples]:
    """(what a search trains on, what it judges by): parts of train and validation, whatever the run trains on.

    A list of duplicates is of one split: that of train+validation leaves nothing out of a search, only of the run.

    Raises:
        DataError: when nothing is held out of the training examples.
    """
    objective, examples = objective_of(settings), settings.examples
    left_out = {"without": settings.without} if settings.split == "train" else {}
    train = data.load(settings.dataset, "train", **left_out)
    if examples and examples < train.num_examples:
        train = data.load(settings.dataset, "train", examples=examples, seed=settings.seed, **left_out)
    return train.with_objective(objective), data.load(settings.dataset, "validation").with_objective(objective)


def search_fields(
    settings: Settings, recipe: training.Recipe, folder: Path, console: Console, every: int, grid: dict | None = None
) -> SearchResult:
    """The point of the settings' grid, or of `grid`, that does best on the development set.

    As in Appendix B.1.1 the search never trains on what it judges by, whatever the run itself trains on. Called in the
    strategy's scope; `folder` keeps the scores, so that a search that was killed goes on.

    Raises:
        ConfigError: when there is nothing to try, or a value cannot be.
        DataError: when nothing is held out of the training examples.
    """
    grid = make_grid(settings, recipe) if grid is None else grid
    examples, held_out = load_examples(settings)
    if examples.multi_label:
        raise ConfigError("A search ranks by accuracy, and images of several classes have none.")
    if settings.patch_target == "pixels":
        raise ConfigError("A search ranks by accuracy, and pixels have none. Predict mean-colour or colours-4x4.")
    if "augmentation" in grid and find_augmentation(examples.augmentation).restricted:
        raise ConfigError(f"The images of {examples.name} keep their own augmentation. Search other fields.")
    microbatches = count_microbatches(settings, recipe, load_model(settings, recipe, examples))

    def prepare(candidate):
        model = load_model(settings, candidate, examples)

        def batches(step):
            augmentation = augmentation_for(settings, candidate, examples)
            found = examples.train(
                candidate.batch_size, model.preprocessing, augmentation=augmentation, seed=settings.seed, start=step
            )
            return kit.weigh(settings, examples, found)

        development = held_out.evaluation(candidate.batch_size // microbatches, model.preprocessing)
        return training.Trial(model, batches, development)

    def tell(point, accuracy):
        console.print(
            f"{describe_point(point)}: {'diverged' if accuracy is None else f'{accuracy:.1%}'}", soft_wrap=True
        )

    console.print(f"Training once at each point of {', '.join(grid)}, on {examples.num_examples:,} images.")
    found = training.search_recipe(
        recipe,
        grid,
        prepare,
        folder,
        every=every,
        seed=settings.seed,
        tell=tell,
        microbatches=microbatches,
        **kit.compile_arguments(settings, examples),
    )
    console.print(f"Best on the {held_out.num_examples:,} images of the development set: {describe_point(found.best)}.")
    return found
