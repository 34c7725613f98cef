"""Names of the classes, a line per class in labels/.

ImageNet (ILSVRC-2012) and ImageNet-21k: WordNet's lemmas, in the order of the official heads. Fashion-MNIST: its
authors' names. Emoji: the folders that tools/emoji.py makes.
"""

import functools
import importlib.resources

LABEL_SETS = ("imagenet1k", "imagenet21k", "fashion_mnist", "emoji")


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
