"""From names to checkpoints. Imports neither TensorFlow nor Keras.

A name is one of

    ViT-B/16                         a variant: its default weights
    ViT-B/16:augreg-i21k             a variant and a tag: a row of registry.json
    augreg/B_16-i21k-300ep-...       any AugReg file, by the authors' own name for it
    vtab/BiT-M-R50x1-run0-svhn       any BiT model fine-tuned on VTAB-1k, likewise
    hf://owner/repo/file             a file of the Hugging Face Hub ("model.safetensors" where none is named)
    gs://bucket/file, https://...    a file anywhere
    path/to/file.npz                 a file on disk
    runs/1, path/to/folder           a folder with such a file: of a run, or as the Hub has it
"""

import difflib
import os
import re
from pathlib import Path

from keras_vit.errors import UnknownNameError, describe_unknown
from keras_vit.models.variants import VARIANTS
from keras_vit.zoo.fetch.addresses import whole_address
from keras_vit.zoo.formats.checkpoint import find_file
from keras_vit.zoo.names import stems
from keras_vit.zoo.names.other_names import describe_unknown_model, exact_name
from keras_vit.zoo.names.rows import PublicCheckpoint, checkpoints, default_tag


def checkpoint_at(url):
    """The checkpoint at an address, with what is known of it where it is one of the authors' files."""
    for row in checkpoints():
        if row.url == url:
            return row
    for root, parse in stems.COLLECTIONS.values():
        if url.startswith(root):
            return parse(url.removeprefix(root).removesuffix(".npz"))
    return PublicCheckpoint(url=url)


def checkpoint_of_tag(head, tag):
    """The variant's checkpoint of that tag; of its default tag where `tag` is empty."""
    rows = {row.tag: row for row in checkpoints() if row.variant == head}
    if not rows:
        raise UnknownNameError(
            f"{head} has no public weights. Load it with weights=None, or with the path of weights of your own."
        )
    tag = tag or default_tag(head)
    if tag in rows:
        return rows[tag]
    raise UnknownNameError(describe_unknown(f"checkpoint of {head} with the tag", tag, rows))


def is_path(text):
    """Whether an unknown name is meant as a path: by its beginning, its ending, or a slash after letters that begin no
    model's name.

    >>> is_path("runs/nope"), is_path("model.tflite"), is_path("VT-B/16"), is_path("R20x0.7")
    (True, True, False, False)
    """
    if exact_name(text):
        return False
    if text.startswith(("/", "./", "../", "~")) or re.search(r"\.[a-z]\w*$", text, re.IGNORECASE):
        return True
    head, slash, _ = text.casefold().partition("/")
    beginnings = {known.casefold().partition("/")[0] for known in VARIANTS}
    return bool(slash) and not difflib.get_close_matches(head, beginnings)


def resolve(name: str | Path) -> PublicCheckpoint | Path:
    """What a name stands for: a `PublicCheckpoint`, or the path of a file or folder on disk.

    Raises:
        UnknownNameError: for a name that no table has; the message names the nearest ones.
        CheckpointError: for the path of a file that does not exist, or of a folder without a checkpoint.

    >>> resolve("ViT-L/16:augreg-i21k").num_classes
    21843
    """
    text = str(name)
    if "://" in text:
        return checkpoint_at(whole_address(text))
    head, _, tag = text.partition(":")
    if head in VARIANTS:
        return checkpoint_of_tag(head, tag)
    path = Path(os.path.expanduser(name))
    if os.path.isfile(path):
        return path
    collection, _, stem = text.removesuffix(".npz").partition("/")
    if collection in stems.COLLECTIONS and stem:
        _, parse = stems.COLLECTIONS[collection]
        return parse(stem)
    if isinstance(name, Path) or os.path.isdir(path) or is_path(text):
        find_file(path)
        return path
    raise UnknownNameError(describe_unknown_model("model or file", str(name)))
