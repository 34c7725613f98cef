"""Finds checkpoints by name, and our names for those of other packages. Imports neither TensorFlow nor Keras.

A name is one of

    ViT-B/16                         a variant: its default weights
    ViT-B/16:augreg-i21k             a variant and a tag: a row of registry.json
    augreg/B_16-i21k-300ep-...       any AugReg file, by the authors' own name for it
    vtab/BiT-M-R50x1-run0-svhn       any BiT model fine-tuned on VTAB-1k, likewise
    hf://owner/repo/file             a file of the Hugging Face Hub ("model.safetensors" if none is named)
    gs://bucket/file, https://...    a file anywhere
    path/to/file.npz                 a file on disk
    runs/1, path/to/folder           a folder with such a file: of a run, or from the Hub

The error for a model's name in another package, such as vit_base_patch16_224, gives its name here.
"""

import difflib
import os
import re
from pathlib import Path

from keras_vit.errors import UnknownNameError, describe_unknown
from keras_vit.models.variants import VARIANTS, Variant
from keras_vit.zoo.fetch.places import whole_address
from keras_vit.zoo.formats import find_file
from keras_vit.zoo.names.rows import COLLECTIONS, PublicCheckpoint, checkpoints, default_tag

SIZES = {"tiny": "Ti", "small": "S", "base": "B", "large": "L", "huge": "H"}
BACKBONES = {"r": "R", "r26": "R26", "r50": "R50", "resnet50": "R50"}

# timm's names of architectures; keras-hub's presets begin like them. The parts are a variant and a size in pixels. Only
# the authors' own trainings may follow: others, such as DINO, have other weights.
TRAINING = r"(?P<training>(_(in21k|sam|imagenet|imagenet21k|distilled|teacher|384))*(\.(augreg|orig|sam|goog)_\w+)?)"
TIMM_VIT = re.compile(rf"vit_(?P<size>[a-z]+)_patch(?P<patch>\d+)_(?P<pixels>\d+){TRAINING}")
TIMM_HYBRID = re.compile(
    rf"vit_(?P<size>[a-z]+)_(?P<backbone>r\d*|resnet50)(_s(?P<patch>\d+)(_p8)?)?_(?P<pixels>\d+){TRAINING}"
)
TIMM_RESNET = re.compile(rf"resnetv2_(?P<depth>\d+)x(?P<width>\d+)_bitm?{TRAINING}")
TIMM_TAGGED = re.compile(r"(vit|deit3?|flexivit|resnetv2)_\w+\.\w+")  # other trainings, in timm's repositories
# The authors' own: B_16, ViT-B_16.npz, BiT-M-R50x1.
AUTHORS_BIT = re.compile(r"bit-(?P<data>[sm])-(?P<variant>r\d+x\d)(\.npz)?", re.IGNORECASE)
HUB_OWNERS = ("google", "timm", "facebook", "winkawaks")  # of ViTs, hybrids and BiTs on the Hugging Face Hub

# Words after the architecture in a name of timm or keras-hub, and the tags of that training; {} is the size in pixels.
# The first row with all words in the name counts, and the first of its tags that the variant has.
TRAININGS = (
    (("sam",), ("sam",)),
    (("distilled",), ("distill-224",)),
    (("teacher", "384"), ("distill-teacher-384",)),
    (("teacher",), ("distill-teacher-224",)),
    (("goog", "in21k_ft_in1k"), ("bit-m-in1k",)),
    (("goog", "in21k"), ("bit-m",)),
    (("orig", "in21k_ft_in1k"), ("i21k-in1k-{}",)),
    (("orig", "in21k"), ("i21k",)),
    (("augreg_in1k",), ("augreg-in1k-{}",)),
    (("in21k_ft_in1k",), ("augreg-i21k-in1k-{}-timm", "augreg-i21k-in1k-{}", "i21k-in1k-{}", "bit-m-in1k")),
    (("in21k",), ("augreg-i21k", "i21k", "bit-m")),
    (("imagenet21k",), ("i21k",)),  # keras-hub's are the paper's own
    (("imagenet",), ("i21k-in1k-{}",)),
    ((), ("augreg-i21k-in1k-{}-timm", "augreg-i21k-in1k-{}", "i21k-in1k-{}", "bit-m-in1k")),
)


def simplify(name):
    """The letters and digits of a name, in lower case.

    >>> simplify("ViT-B_16"), simplify("vit-b/16")
    ('vitb16', 'vitb16')
    """
    return re.sub(r"[^a-z0-9]", "", name.casefold())


def respell(name):
    """The variant for another spelling, or for the authors' name without "ViT-"; otherwise None."""
    spellings = {simplify(spelling): known for known in VARIANTS for spelling in (known, known.replace("ViT-", ""))}
    return spellings.get(simplify(name.removesuffix(".npz")))


def variant_of_timm(name):
    """(variant, pixels, training) for a name of timm's architectures; None if this zoo does not have it."""
    if found := TIMM_VIT.fullmatch(name):
        variant = f"ViT-{SIZES.get(found['size'])}/{found['patch']}"
    elif found := TIMM_HYBRID.fullmatch(name):
        patch = found["patch"] or "16"
        variant = f"{BACKBONES.get(found['backbone'])}+ViT-{SIZES.get(found['size'])}/{patch}"
    elif found := TIMM_RESNET.fullmatch(name):
        variant = f"R{found['depth']}x{found['width']}"
    parts = found and found.groupdict()
    return (variant, parts.get("pixels") or "224", parts["training"]) if parts and variant in VARIANTS else None


def name_of_timm(name):
    """Our name for timm's: a checkpoint of that training if there is one, otherwise the variant."""
    parts = variant_of_timm(name.casefold())
    if parts is None:
        return None
    variant, pixels, training = parts
    tags = [row.tag for row in checkpoints() if row.variant == variant]
    wanted = next(wanted for words, wanted in TRAININGS if all(word in training for word in words))
    chosen = next((tag for tag in (w.format(pixels) for w in wanted) if tag in tags), None)
    return f"{variant}:{chosen}" if chosen else variant


def exact_name(name: str) -> str | None:
    """The name for `zoo.load` of a model with this name elsewhere; None for an unknown name.

    It knows other spellings of the variants, the authors' names of files, timm's architectures with or without their
    tags, keras-hub's presets that begin like these, and repositories of the Hugging Face Hub.

    >>> exact_name("vit-b/16"), exact_name("vit_base_patch16_384.augreg_in21k_ft_in1k")
    ('ViT-B/16', 'ViT-B/16:augreg-i21k-in1k-384-timm')
    >>> exact_name("google/vit-base-patch16-224"), exact_name("BiT-M-R50x1"), exact_name("cat.jpg")
    ('hf://google/vit-base-patch16-224', 'R50x1:bit-m', None)
    """
    head, colon, tag = name.partition(":")
    if variant := respell(head):
        return variant + colon + tag
    if found := AUTHORS_BIT.fullmatch(name):
        variant = respell(found["variant"])
        return variant and f"{variant}:bit-{found['data'].casefold()}"
    owner, _, repository = name.partition("/")
    if repository and owner.casefold() in HUB_OWNERS:
        return f"hf://{name}"
    return name_of_timm(name) or (f"hf://timm/{name}" if TIMM_TAGGED.fullmatch(name) else None)


def describe_unknown_model(kind: str, name: str) -> str:
    """The error's text for an unknown name: its name here, or the nearest names."""
    exact = exact_name(str(name))
    if exact is None:
        return describe_unknown(kind, name, VARIANTS, "keras-vit list, in Python zoo.list(), shows all.")
    return f"There is no {kind} {str(name)!r}. Here it is called {exact}."


def find_variant(name: str) -> Variant:
    """The variant of this name; the error for any other has the correct name, or the nearest."""
    if name in VARIANTS:
        return VARIANTS[name]
    raise UnknownNameError(describe_unknown_model("model", name))


def checkpoint_at(url):
    """The checkpoint at an address, with known facts if it is one of the authors' files."""
    for row in checkpoints():
        if row.url == url:
            return row
    for root, parse in COLLECTIONS.values():
        if url.startswith(root):
            return parse(url.removeprefix(root).removesuffix(".npz"))
    return PublicCheckpoint(url=url)


def checkpoint_of_tag(head, tag):
    """The variant's checkpoint with this tag; with its default tag if `tag` is empty."""
    rows = {row.tag: row for row in checkpoints() if row.tag and row.variant == head}
    if not rows:
        raise UnknownNameError(
            f"{head} has no public weights. Give the path of a checkpoint of your own; in Python, weights=None makes "
            "random ones."
        )
    tag = tag or default_tag(head)
    if tag in rows:
        return rows[tag]
    raise UnknownNameError(describe_unknown(f"checkpoint of {head} with the tag", tag, rows))


def is_path(text):
    """Whether an unknown name is probably a path, by its beginning, its ending, or a slash after letters that begin no
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
    """Finds the `PublicCheckpoint` of a name, or the path of a file or folder on disk.

    Raises:
        UnknownNameError: for an unknown name; the message has the nearest ones.
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
    if collection in COLLECTIONS and stem:
        _, parse = COLLECTIONS[collection]
        return parse(stem)
    if isinstance(name, Path) or os.path.isdir(path) or is_path(text):
        find_file(path)
        return path
    raise UnknownNameError(describe_unknown_model("model or file", str(name)))
