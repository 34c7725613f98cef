"""`keras-vit finetune` and `pretrain`: a model, a dataset and a recipe to a folder that holds all of the run."""

import contextlib
import dataclasses

import keras

from keras_vit import data, training, zoo
from keras_vit.commands import choices
from keras_vit.commands.progress import FitProgress
from keras_vit.console import Console
from keras_vit.data.datasets.image_files import quote_some
from keras_vit.data.datasets.schemes import would_read
from keras_vit.errors import ConfigError
from keras_vit.evaluation import collect_predictions, draw_mistakes
from keras_vit.text import without_secrets
from keras_vit.training.numbers import require_counts, require_positive
from keras_vit.training.runs.callbacks import is_chief
from keras_vit.training.runs.files import read_json
from keras_vit.training.runs.folder import model_of

SPLITS = ("train", "train+validation")
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a run was asked for; None leaves it to `choices`, the recipe or the model.

    Args:
        model: a name or path that `zoo.load` takes.
        dataset: a name that `data.load` takes.
        recipe: a name that `training.recipe` takes.
        pretrain: random weights in place of the model's.
        split: what is trained on, of SPLITS.
        test: judge the last weights, once, on the test split.
        epochs, steps, batch_size, learning_rate, image_size, augmentation: in place of the recipe's.
        microbatches: parts of each device's batch, one after the other in memory, before the one update.
        grid_search: try the recipe's learning rates first (Appendix B.1.1), and train with the best.
        strategy: see `training.strategy`.
        precision: policy of the layers, such as "mixed_bfloat16".
        seed: of weights, order, augmentation and dropout.

    Raises:
        ConfigError: for numbers, or a precision, that no run can have.
    """

    model: str
    dataset: str
    recipe: str | None = None
    pretrain: bool = False
    split: str = "train"
    test: bool = False
    epochs: float | None = None
    steps: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    image_size: int | None = None
    augmentation: str | None = None
    microbatches: int | None = None
    grid_search: bool = False
    strategy: str = "auto"
    precision: str = "float32"
    seed: int = 0

    def __post_init__(self):
        counts = ("steps", "batch_size", "image_size", "microbatches")
        require_counts(**{name: getattr(self, name) for name in counts})
        require_positive(epochs=self.epochs, learning_rate=self.learning_rate)
        if self.epochs is not None and self.steps is not None:
            raise ConfigError(f"Give epochs or steps, not both. Received: epochs={self.epochs}, steps={self.steps}.")
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"seed must be from 0 to 2 ** 32 - 1. Received: seed={self.seed}.")
        if self.precision not in PRECISIONS:
            raise ConfigError(f"precision must be one of {', '.join(PRECISIONS)}. Received: {self.precision!r}.")


def recorded(settings):
    """The settings as a run's files have them: of an address without what may be secret."""
    return {**dataclasses.asdict(settings), "model": without_secrets(settings.model)}


def recipe_for(settings, examples, replicas=1):
    """The recipe, scaled to the data, the batch size and the length asked for; image_size None is the model's own.

    Data that the paper does not have take 30 epochs and the model's own size, unless told otherwise.
    """
    chosen, paper = choices.recipe_name(settings.dataset, settings.model, settings.pretrain)
    name = settings.recipe or chosen
    given = {"examples": examples.num_examples, "model": settings.model.partition(":")[0]}
    if name.startswith("bit-hyperrule"):
        given["original_size"] = examples.typical_size()
    row = training.recipe(name, **given)
    told = settings.recipe is not None or paper
    epochs, size = settings.epochs, settings.image_size
    if not told and settings.steps is None and epochs is None:
        epochs = choices.EPOCHS
    if told and size is None:
        size = choices.whole_patches(row.image_size, settings.model)
    batch = settings.batch_size
    if batch is None:
        batch = choices.batch_size(row.batch_size, examples.num_examples, paper, replicas)
    changes = {} if settings.learning_rate is None else {"learning_rate": settings.learning_rate}
    return training.recipe(
        name, batch_size=batch, steps=settings.steps, epochs=epochs, image_size=size, **given, **changes
    )


def load_model(settings, recipe, examples):
    """The model with a head for the dataset's classes, as the recipe asks."""
    arguments = {"labels": examples.class_names, "dtype": settings.precision, **recipe.model_arguments}
    if settings.pretrain:
        return zoo.load(settings.model, weights=None, **arguments)
    return zoo.load(choices.checkpoint(settings.model), **arguments)


def parts(settings, recipe, model):
    """Microbatches of each replica's batch; the model is made in the strategy's scope.

    Raises:
        ConfigError: when as many as were asked for do not divide it.
    """
    replicas = model.distribute_strategy.num_replicas_in_sync
    if settings.microbatches is None:
        return choices.microbatches(recipe.batch_size, model.preprocessing.image_size, replicas)
    each = recipe.batch_size // replicas
    if each % settings.microbatches:
        raise ConfigError(
            f"microbatches must divide the batch of each replica. Received: {settings.microbatches}, for {each} images."
        )
    return settings.microbatches


def splits(settings):
    """(examples to train on, those held out to validate on, those to test on); None where there are none.

    Raises:
        ConfigError: for a split that is not of SPLITS.
        DataError: when the dataset does not have them.
    """
    if settings.split not in SPLITS:
        raise ConfigError(f"split must be {' or '.join(SPLITS)}. Received: {settings.split!r}.")
    validation = None if settings.split == "train+validation" else data.load(settings.dataset, "validation")
    test = data.load(settings.dataset, "test") if settings.test else None
    return data.load(settings.dataset, settings.split), validation, test


def searched(settings, recipe, augmentation, console):
    """The recipe with the learning rate that does best on the development set, of those that its source tries.

    As in Appendix B.1.1 the search never trains on what it judges by, whatever the run itself trains on.
    """
    examples, held_out = (data.load(settings.dataset, split) for split in ("train", "validation"))
    paper = training.RECIPES[recipe.name]
    rates = [rate * recipe.learning_rate / paper.learning_rate for rate in recipe.learning_rates]
    first = load_model(settings, recipe, examples)
    console.print(f"Trying the learning rates {', '.join(f'{rate:.2g}' for rate in rates)}, a training each.")
    best, scores = training.search_learning_rate(
        recipe,
        lambda: load_model(settings, recipe, examples),
        examples.train(recipe.batch_size, first.preprocessing, augmentation=augmentation, seed=settings.seed),
        held_out.evaluation(recipe.batch_size // parts(settings, recipe, first), first.preprocessing),
        rates,
        microbatches=parts(settings, recipe, first),
    )
    console.print("  ".join(f"{rate:.2g}: {accuracy:.1%}" for rate, accuracy in scores.items()))
    return recipe.with_(learning_rate=best)


def not_said(out, error):
    return training.RunError(
        f"{out / 'config.json'} does not say what the run was begun with ({error!r}). Put the run's own there, or "
        "choose another folder."
    )


def begun_config(out):
    """The config.json of the run in `out`, a dict.

    Raises:
        RunError: when it is missing or damaged.
    """
    try:
        return dict(read_json(out / "config.json"))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise not_said(out, error) from error


def begun_with(settings, out):
    """The same settings with the batch size and learning rate that the run in `out` was begun with.

    The default batch follows the number of devices, and the rate may have been searched for; a run changes neither.

    Raises:
        RunError: when its config.json does not say.
        ConfigError: when a setting differs.
    """
    begun = begun_config(out)
    try:
        before = dict(begun["settings"])
        batch_size, learning_rate = (begun["recipe"][name] for name in ("batch_size", "learning_rate"))
        require_counts(batch_size=batch_size)
        require_positive(learning_rate=learning_rate)
        taken = dataclasses.replace(settings, batch_size=int(batch_size), learning_rate=float(learning_rate))
    except (ValueError, KeyError, TypeError) as error:
        raise not_said(out, error) from error
    for name, value in recorded(settings).items():
        if before.get(name) != value:
            raise ConfigError(
                f"The run in {out} was begun with {name}={before.get(name)!r}. Received: {name}={value!r}. "
                "Resume it with the settings it was begun with, or choose another folder."
            )
    return taken


def require_apart(dataset, out):
    """Refuses a run's folder that would be a class, with the run's own pictures, when the data are read again."""
    if would_read(dataset, out):
        raise ConfigError(
            f"The run's folder {out} lies among the class folders of {dataset}, and would be read as one. "
            "Choose a folder outside of it."
        )


def require_same_classes(examples, out):
    """Refuses to go on with classes that are not those the run in `out` was begun with."""
    begun, now = begun_config(out).get("classes"), list(examples.class_names)
    if begun is not None and not (isinstance(begun, list) and all(isinstance(name, str) for name in begun)):
        raise not_said(out, "its classes are not a list of names")
    if begun not in (None, now):
        gone, new = (sorted(set(a) - set(b)) for a, b in ((begun, now), (now, begun)))
        raise ConfigError(
            f"The run in {out} was begun with {len(begun)} classes, now {examples.name} has {len(now)}: "
            f"{quote_some(gone) or 'none'} gone, {quote_some(new) or 'none'} new. Resume it with the classes it "
            "was begun with, or choose another folder."
        )


def require_batch(examples, batch_size):
    """Refuses a batch of more pictures than there are."""
    if batch_size > examples.num_examples:
        raise ConfigError(
            f"A batch of {batch_size:,} pictures is larger than {examples.name}, which has {examples.num_examples:,} "
            f"to train on. Choose a batch size of at most {examples.num_examples}."
        )


def run(settings, out, *, resume=False, every=200, console=None):
    """Trains, keeping everything in `out`; gives the accuracy on the test split if asked, else on what is held out.

    The best weights are those that did best on what is held out; nothing is ever chosen by the test split.

    Args:
        settings: `Settings`.
        out: folder of the run.
        resume: go on with the run that is there.
        every: steps between checkpoints.
        console: a rich console; None prints to the terminal.

    Raises:
        KerasVitError: for anything that cannot be trained, in a sentence.

    >>> run(Settings("ViT-B/16", "folder:photos"), "runs/1")
    0.95
    """
    console = console or Console()
    settings = dataclasses.replace(settings, model=model_of(settings.model))
    require_apart(settings.dataset, out)
    kept = training.Run(out, every=every)
    kept.files.check(resume)
    start = max(kept.store.steps(), default=0)
    taken = begun_with(settings, kept.folder) if start else settings
    if resume and not start:
        console.print(f"{out} has no checkpoint yet: the run begins.")
    # Several workers must know of each other before anything is computed.
    strategy = training.strategy(settings.strategy)
    keras.utils.set_random_seed(settings.seed)
    examples, held_out, test = splits(settings)
    if start:
        require_same_classes(examples, kept.folder)
    recipe = recipe_for(taken, examples, strategy.num_replicas_in_sync)
    require_batch(examples, recipe.batch_size)
    augmentation = settings.augmentation or (None if examples.augmentation == "none" else recipe.augmentation)
    with data.data_errors(), strategy.scope():
        if settings.grid_search and not start:
            recipe = searched(settings, recipe, augmentation, console)
        model = load_model(settings, recipe, examples)
        microbatches = parts(settings, recipe, model)
        recipe.compile(model, microbatches=microbatches)
    introduce(console, settings, model, recipe, examples, held_out, test)
    at_once = recipe.batch_size // microbatches
    progress = FitProgress(recipe.total_steps, start, recipe.batch_size)
    with data.data_errors(), contextlib.closing(progress):
        kept.fit(
            model,
            lambda step: examples.train(
                recipe.batch_size, model.preprocessing, augmentation=augmentation, seed=settings.seed, start=step
            ),
            recipe.total_steps,
            steps_per_epoch=examples.steps_per_epoch(recipe.batch_size),
            validation=held_out and held_out.evaluation(at_once, model.preprocessing),
            resume=resume,
            callbacks=[progress],
            config={
                "settings": recorded(settings),
                "recipe": dataclasses.asdict(recipe),
                "classes": examples.class_names,
            },
        )
        return finish(model, held_out, test, at_once, kept, console)


def introduce(console, settings, model, recipe, examples, held_out, test):
    """Says what will be trained, on what, and for how long, before it begins."""
    name = without_secrets(settings.model)
    source = name if settings.pretrain else choices.checkpoint(name)
    size = "x".join(map(str, model.config.image_size or ("any",)))
    console.print(f"{source}: {model.count_params():,} parameters, {size} pixels, {examples.num_classes} classes.")
    if source != name:
        console.print(f"{name} starts from {source}, pre-trained and not yet fine-tuned; name another tag for others.")
    judged = [f"{held_out.num_examples:,} held out"] if held_out else ["none held out: the last weights are the run's"]
    judged += [f"{test.num_examples:,} to test on, once, at the end"] if test else []
    console.print(f"Images: {examples.num_examples:,} to train on, {', '.join(judged)}.")
    console.print(plan(recipe, model.microbatches, examples))
    full = recipe_for(dataclasses.replace(settings, steps=None, epochs=None), examples)
    if recipe.images_seen < full.images_seen / 10:
        console.print(
            f"That is {recipe.images_seen / full.images_seen:.2g} of the {full.images_seen:,} images that the recipe "
            "sees without --steps or --epochs."
        )


def plan(recipe, microbatches, examples):
    """How long a training is, in a sentence."""
    cut = f", in {microbatches} microbatches," if microbatches > 1 else ""
    return (
        f"{recipe.name}: {recipe.optimizer}, {recipe.total_steps:,} steps of {recipe.batch_size} images{cut} at a "
        f"learning rate of {recipe.learning_rate:.2g} see {recipe.images_seen:,} images, "
        f"{recipe.images_seen / examples.num_examples:.3g} epochs "
        f"({recipe.source.partition(';')[0]})."
    )


def finish(model, held_out, test, batch_size, kept, console):
    """Writes the model in the official layout and the picture of its mistakes; gives the accuracy, if any."""
    judged = test or held_out
    found = judged and collect_predictions(model, judged.evaluation(batch_size, model.preprocessing))
    if is_chief(model):
        with kept.writing("model.npz") as path:
            zoo.save(model, path)
        if found:
            with kept.writing("mistakes.png") as path:
                draw_mistakes(found, judged.class_names, path)
    if found:
        console.print(
            f"{'Test' if test else 'Held-out'} accuracy: {found.accuracy:.1%} of {len(found.labels):,} images."
        )
    console.print(f"Everything is in {kept.folder}: model.keras, model.npz{', mistakes.png' if found else ''}, ...")
    return found and found.accuracy
