"""Names of the classes: ImageNet (ILSVRC-2012) and ImageNet-21k, in the order of the official heads.

The words are WordNet's lemmas, a line per class, in labels/.
"""

import functools
import importlib.resources

LABEL_SETS = ("imagenet1k", "imagenet21k")


@functools.cache
def class_names(dataset: str | None) -> tuple[str, ...] | None:
    """The names of a dataset's classes; None for a dataset whose names are not here.

    >>> class_names("imagenet1k")[281]
    'tabby, tabby cat'
    """
    if dataset not in LABEL_SETS:
        return None
    text = importlib.resources.files("keras_vit.zoo").joinpath(f"labels/{dataset}.txt").read_text("utf-8")
    return tuple(text.splitlines())
