"""What the shell offers for an option's value, from the tables of names; these are imported when it asks."""

import glob
import os


def select(names, incomplete):
    """Those of the names that begin like what was typed, in whatever case."""
    return [name for name in names if name.casefold().startswith(incomplete.casefold())]


def complete_model(incomplete: str) -> list[str]:
    """The variants and checkpoints whose names begin so.

    >>> complete_model("vit-h")
    ['ViT-H/14', 'ViT-H/14:i21k']
    """
    from keras_vit.models.variants import VARIANTS
    from keras_vit.zoo.names.rows import checkpoints

    return select([*VARIANTS, *(row.name for row in checkpoints())], incomplete)


def complete_place(incomplete: str) -> list[str]:
    """As `complete_model`, and the files and folders whose paths begin so: a run, a checkpoint, a bundle.

    >>> complete_place("vit-h")
    ['ViT-H/14', 'ViT-H/14:i21k']
    """
    paths = sorted(glob.glob(glob.escape(incomplete) + "*"))
    folders = (path + "/" if os.path.isdir(path) else path for path in paths)
    return [*complete_model(incomplete), *folders]


def complete_recipe(incomplete: str) -> list[str]:
    """The recipes whose names begin so.

    >>> complete_recipe("finetune-f")
    ['finetune-flowers']
    """
    from keras_vit.training.recipe_rows import RECIPES
    from keras_vit.training.scaling import FAMILIES

    return select([*FAMILIES, *RECIPES], incomplete)


def complete_augmentation(incomplete: str) -> list[str]:
    """The augmentations whose names begin so.

    >>> complete_augmentation("strong")
    ['strong1', 'strong2']
    """
    from keras_vit.data.augment.rows import AUGMENTATIONS

    return select(AUGMENTATIONS, incomplete)


def complete_dataset(incomplete: str) -> list[str]:
    """The datasets, and the beginnings such as "folder:", whose names begin so.

    >>> complete_dataset("fo")
    ['folder:']
    """
    from keras_vit.data.datasets.schemes import DATASETS

    return select([f"{row.name}:" if row.argument else row.name for row in DATASETS.values()], incomplete)
