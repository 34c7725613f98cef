"""`recipe(name)` finds a row and scales it to a batch size and a length."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from keras_vit.data.augment.augmentations import hyper_rule_sizes
from keras_vit.errors import COUNT, POSITIVE, ConfigError, UnknownNameError, describe_unknown, require_within
from keras_vit.models.variants import variant
from keras_vit.training.recipe_rows import AUGREG_AUGMENTATIONS, HYPER_RULE, PHOTOS, RECIPES, SGD_ON_JFT, TABLE3
from keras_vit.training.recipes import Recipe, RecipeChanges

if TYPE_CHECKING:
    from typing import Unpack

SAME_LENGTH = 0.02  # without its development set ImageNet is 1 % smaller: the warmup stays 10,000 steps
FAMILIES = ("pretrain-jft", "pretrain-imagenet21k", "bit-hyperrule")
LEAST_BATCHES = 8  # in an epoch of such a dataset
LEAST_BATCH_SIZE = 8
MICROBATCH_PIXELS = 32 * 224 * 224  # on one device


def choose_batch_size(own: int, examples: int, paper: bool, replicas: int = 1) -> int:
    """The recipe's `own` batch size if the data suffice, else the largest power of two that makes several batches.

    For the paper's datasets one batch suffices (Flowers has 1.8 of 512). A batch is never larger than the dataset,
    unless it has fewer images than there are replicas.

    >>> choose_batch_size(512, 918, paper=True), choose_batch_size(512, 500, paper=False)
    (512, 32)
    """
    if examples < (1 if paper else LEAST_BATCHES) * own:
        own = min(examples, max(LEAST_BATCH_SIZE, 2 ** (examples // LEAST_BATCHES).bit_length() // 2))
    return max(own // replicas, 1) * replicas


def choose_microbatches(batch_size: int, image_size: tuple[int, int], replicas: int = 1) -> int:
    """The number of microbatches per replica with which each has at most the pixels of 32 images of 224 x 224.

    `Recipe.compile` takes the number as `microbatches`.

    Args:
        batch_size: images of all replicas together.
        image_size: (height, width) in pixels.

    >>> choose_microbatches(512, (384, 384)), choose_microbatches(512, (224, 224), replicas=8)
    (64, 2)
    """
    each, most = batch_size // replicas, max(MICROBATCH_PIXELS // (image_size[0] * image_size[1]), 1)
    return next((n for n in range(1, each + 1) if each % n == 0 and each // n <= most), 1)


def choose_hyper_rule_row(row, examples, original_size, model):
    """The BiT-HyperRule's row for the number of examples, or the given row, with the image size of the rule."""
    if row is None:
        size = "small" if examples < 20_000 else "medium" if examples < 500_000 else "large"
        row = RECIPES[f"bit-hyperrule-{size}"]
    resize, crop = hyper_rule_sizes(*(original_size or (96, 96)), model=model)
    kind = {160: "bit-small", 448: "bit", 512: "bit-large"}[resize]
    return replace(row, image_size=crop, augmentation=row.augmentation.replace("bit", kind))


def choose_pretraining_row(dataset, model):
    """Table 3's row for a dataset, "jft" or "imagenet21k", and a variant.

    Hybrids without a row get that of their ViT (Appendix B.1), ViTs without one that of the nearest size.
    """
    rows = [row for row in TABLE3 if row.name.startswith(f"pretrain-{dataset}-")]
    for row in rows:
        if model in row.models:
            return row
    if variant(model).family == "ResNet":
        raise ConfigError(
            f"Table 3 has no row, so no learning rate, for {model} on {dataset}. Choose a row by its name: "
            f"{', '.join(row.name for row in (*rows, SGD_ON_JFT) if row.representation_size is None)}, bit-i21k, ..."
        )
    sizes = {"L": "L", "H": "LH", "g": "LH"}.get(model.partition("ViT-")[2][0], "B")
    beginnings = tuple(f"pretrain-{dataset}-ViT-{size}" for size in sizes)
    return [row for row in rows if row.name.startswith(beginnings)][-1]


def fit_augmentation(row, model):
    """AugReg's row with the augmentation for the model's size; any other row unchanged."""
    size, sizes = (model or "").partition("ViT-")[2], AUGREG_AUGMENTATIONS.get(row.name, {})
    chosen = (augmentation for beginning, augmentation in sizes.items() if size.startswith(beginning))
    return replace(row, augmentation=next(chosen, row.augmentation))


def unknown_recipe(name: str) -> UnknownNameError:
    """The error for an unknown name of a recipe."""
    return UnknownNameError(describe_unknown("recipe", name, (*FAMILIES, *RECIPES), "keras-vit recipes shows all."))


def find_row(name, examples, model, original_size):
    """The row of a name; if the name is a family's, the row for these data or this model."""
    folded = {key.casefold(): row for key, row in RECIPES.items()}
    if name == "bit-hyperrule" and examples is None:
        raise ConfigError("bit-hyperrule follows the size of the training set: give examples=.")
    if name == "bit-hyperrule" or folded.get(name) in HYPER_RULE:
        return choose_hyper_rule_row(folded.get(name), examples, original_size, model)
    if name in FAMILIES:
        if model is None:
            raise ConfigError(f'{name} has a row for each model: give model=, such as "ViT-B/16".')
        return choose_pretraining_row(name.removeprefix("pretrain-"), model)
    if name not in folded:
        raise unknown_recipe(name)
    return fit_augmentation(folded[name], model)


def change_batch(row, batch_size):
    """The row at another batch size: its steps and learning rate change, the number of images seen does not."""
    ratio = batch_size / row.batch_size
    rate = row.learning_rate * ratio ** (1.0 if row.optimizer == "SGD" else 0.5)
    steps = row.steps and max(1, round(row.steps / ratio))
    return replace(row, batch_size=batch_size, learning_rate=rate, steps=steps)


def scale(row, batch_size=None, steps=None, epochs=None, examples=None):
    """The row for another batch size or length; see `recipe` for the rule."""
    if epochs and not (examples or row.examples):
        raise ConfigError(f"{row.name} counts steps; with epochs= give examples= too.")
    target = replace(row, examples=examples or row.examples)
    if epochs:
        target = replace(target, steps=None, epochs=epochs)
    if batch_size:
        target = change_batch(target, batch_size)
    if steps:
        target = replace(target, steps=steps)
    length = target.images_seen / row.images_seen
    if abs(length - 1) < SAME_LENGTH:
        length = 1
    ratio = length * row.batch_size / target.batch_size
    return replace(
        target,
        warmup_steps=min(round(row.warmup_steps * ratio), target.total_steps - 1),
        boundaries=tuple(round(boundary * ratio) for boundary in row.boundaries),
        ema_momentum=row.ema_momentum and row.ema_momentum ** (1 / ratio),
    )


def recipe(
    name: str,
    *,
    batch_size: int | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    examples: int | None = None,
    model: str | None = None,
    original_size: tuple[int, int] | None = None,
    **changes: Unpack[RecipeChanges],
) -> Recipe:
    """Finds a recipe by name, and scales it by one rule.

    **The number of images seen does not change.** Another batch size multiplies the number of steps, the warmup and the
    staircase's boundaries by (row's batch / new batch). It multiplies the learning rate by (new batch / row's batch)
    with SGD, by the square root of it with Adam, and raises ema_momentum to the power of it (arXiv 2307.13813). So
    Table 4's 500 steps of 512 images are 77 epochs of Pets at any batch size. (The row's own batch in microbatches,
    `compile(model, microbatches=16)`, is the same up to rounding.)

    Another length, by `steps`, by `epochs`, or by the row's own epochs over other `examples`, multiplies the warmup and
    the boundaries by the ratio of images seen, unless that differs from 1 by less than 2 %, and averages weights over
    the same share of the run. A given `learning_rate` is not scaled.

    Args:
        name: a row, such as "finetune-cifar10"; or "pretrain-jft" and "pretrain-imagenet21k", with one row for each
            `model`; or "bit-hyperrule", which depends on `examples`, `original_size` and `model`. "finetune-photos",
            the default of `keras-vit finetune` for data that the paper does not train on, keeps its learning rate at
            any batch size; its default batch size makes about eight batches of an epoch of `examples`.
        batch_size: images per update on all replicas together.
        steps, epochs: updates, at that batch size; or passes over `examples`.
        examples: number of training examples.
        model: a variant, such as "ViT-L/16"; it also sets the augmentation of "augreg-i21k" and "augreg-i1k".
        original_size: (height, width) in pixels of the dataset's images; None for 96 x 96 or more.
        changes: any other field of `Recipe`, not scaled.

    Raises:
        UnknownNameError: if there is no recipe of that name, or no optimizer, decay or loss named by a change.
        ConfigError: if a number is out of range, a change is not a field, or the model has no row.

    >>> recipe = keras_vit.training.recipe("finetune-cifar10", batch_size=128)
    >>> recipe.learning_rate, recipe.total_steps
    (0.0025, 40000)
    >>> recipe = keras_vit.training.recipe("finetune-photos", examples=500)
    >>> recipe.learning_rate, recipe.batch_size, recipe.total_steps
    (0.03, 32, 469)
    """
    fields = RecipeChanges.__annotations__
    if changes.keys() - fields:
        wrong = sorted(changes.keys() - fields)[0]
        raise ConfigError(describe_unknown("field of a recipe to change", wrong, sorted(fields)))
    require_within(COUNT, batch_size=batch_size, steps=steps, examples=examples)
    require_within(POSITIVE, epochs=epochs)
    if steps is not None and epochs is not None:
        raise ConfigError(f"Give steps or epochs, not both. Received: steps={steps}, epochs={epochs}.")
    row = find_row(str(name).casefold(), examples, model, original_size)
    if row == PHOTOS:
        batch_size = batch_size or choose_batch_size(row.batch_size, examples or row.examples, paper=False)
        changes = {"learning_rate": row.learning_rate, **changes}
    return scale(row, batch_size, steps, epochs, examples).with_(**changes)
