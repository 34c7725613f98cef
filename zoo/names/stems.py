"""Reads the names of files that the authors name by a grammar: AugReg's 52,268 and BiT's 285 fine-tuned on VTAB-1k."""

import dataclasses
import re

from keras_vit.errors import UnknownNameError
from keras_vit.models import cost
from keras_vit.zoo.names.rows import PublicCheckpoint

AUGREG_ROOT = "https://storage.googleapis.com/vit_models/augreg/"
VTAB_ROOT = "https://storage.googleapis.com/bit_models/vtab/"

# The authors drop "ViT-" and write "+" and "/" as "_" (vit_jax/configs/models.py).
AUGREG_MODELS = {
    "Ti_16": "ViT-Ti/16",
    "S_32": "ViT-S/32",
    "S_16": "ViT-S/16",
    "B_32": "ViT-B/32",
    "B_16": "ViT-B/16",
    "B_8": "ViT-B/8",
    "L_16": "ViT-L/16",
    "R_Ti_16": "R+ViT-Ti/16",
    "R26_S_32": "R26+ViT-S/32",
    "R50_L_32": "R50+ViT-L/32",
}
AUGREG_DATASETS = {
    "i1k": ("imagenet1k", 1000),
    "i21k": ("imagenet21k", 21843),
    "imagenet2012": ("imagenet1k", 1000),
    "cifar100": ("cifar100", 100),
    "oxford_iiit_pet": ("oxford_iiit_pet", 37),
    "kitti": ("kitti", 4),
    "resisc45": ("resisc45", 45),
}
AUGREG_FIELDS = {
    "model": tuple(AUGREG_MODELS),
    "ds": ("i1k", "i21k"),
    "epochs": ("30", "300"),
    "lr": ("0.001",),
    "aug": ("none", "light0", "light1", "medium1", "medium2", "strong1", "strong2"),
    "wd": ("0.03", "0.1"),
    "do": ("0.0", "0.1"),
    "sd": ("0.0", "0.1"),
    "adapt_ds": ("imagenet2012", "cifar100", "oxford_iiit_pet", "kitti", "resisc45"),
    "adapt_steps": ("0k", "2k", "10k", "20k"),
    "adapt_lr": ("0.001", "0.003", "0.01", "0.03"),
    "adapt_resolution": ("224", "384"),
}
AUGREG_GRAMMAR = (
    "{model}-{ds}-{epochs}ep-lr_{lr}-aug_{aug}-wd_{wd}-do_{do}-sd_{sd}"
    "[--{adapt_ds}-steps_{adapt_steps}-lr_{adapt_lr}-res_{adapt_resolution}]"
)
AUGREG_STEM = re.compile(
    r"(?P<model>\w+?)-(?P<ds>\w+?)-(?P<epochs>\d+)ep-lr_(?P<lr>[\d.]+)-aug_(?P<aug>\w+?)-wd_(?P<wd>[\d.]+)"
    r"-do_(?P<do>[\d.]+)-sd_(?P<sd>[\d.]+)"
    r"(--(?P<adapt_ds>\w+?)-steps_(?P<adapt_steps>\w+?)-lr_(?P<adapt_lr>[\d.]+)-res_(?P<adapt_resolution>\d+))?"
)

# Classes per task as the VTAB benchmark defines them (arXiv 1910.04867).
VTAB_TASKS = {
    "caltech101": 102,
    "cifar100": 100,
    "clevr-count": 8,
    "clevr-distance": 6,
    "diabetic_retinopathy": 5,
    "dmlab": 6,
    "dsprites-orientation": 16,
    "dsprites-xpos": 16,
    "dtd": 47,
    "eurosat": 10,
    "kitti-distance": 4,
    "oxford_flowers102": 102,
    "oxford_iiit_pet": 37,
    "patch_camelyon": 2,
    "resisc45": 45,
    "smallnorb-azimuth": 18,
    "smallnorb-elevation": 9,
    "sun397": 397,
    "svhn": 10,
}
SMALL_IMAGES = ("cifar100", "dsprites-orientation", "dsprites-xpos", "eurosat", "svhn")  # under 96 x 96 pixels
VTAB_FIELDS = {
    "model": ("R50x1", "R101x1", "R50x3", "R101x3", "R152x4"),
    "run": ("0", "1", "2"),
    "task": tuple(VTAB_TASKS),
}
VTAB_STEM = re.compile(r"BiT-M-(?P<model>\w+)-run(?P<run>\d+)-(?P<task>[\w-]+)")


def match_stem(pattern, stem, fields, grammar):
    """The parts of a file name, each checked against the values it can take."""
    found = pattern.fullmatch(stem)
    if found is None:
        raise UnknownNameError(f"{stem!r} is not a name of the form {grammar}.")
    for name, value in found.groupdict().items():
        if value is not None and value not in fields[name]:
            known = ", ".join(fields[name])
            raise UnknownNameError(f"There is no file {stem!r}: its {name} is {value}; expected one of {known}.")
    return found.groupdict()


def with_sizes(checkpoint):
    """The checkpoint with what follows from its configuration: parameters, and bytes at four a parameter."""
    count = cost.count_parameters(checkpoint.config)
    return dataclasses.replace(checkpoint, parameters=count, bytes=4 * count, bytes_source="computed")


def parse_augreg(stem):
    """The checkpoint of AugReg (arXiv 2106.10270) with that file name, ".npz" left out.

    Raises:
        UnknownNameError: for a part that the authors' files do not have. Which parts they combined, the server knows.

    >>> stem = "R26_S_32-i21k-300ep-lr_0.001-aug_none-wd_0.1-do_0.0-sd_0.0--kitti-steps_2k-lr_0.01-res_384"
    >>> parse_augreg(stem).num_classes
    4
    """
    found = match_stem(AUGREG_STEM, stem, AUGREG_FIELDS, AUGREG_GRAMMAR)
    dataset, num_classes = AUGREG_DATASETS[found["adapt_ds"] or found["ds"]]
    return with_sizes(
        PublicCheckpoint(
            url=f"{AUGREG_ROOT}{stem}.npz",
            variant=AUGREG_MODELS[found["model"]],
            collection="augreg",
            num_classes=num_classes,
            classifier="token",
            resolution=int(found["adapt_resolution"] or 224),
            crop=None if found["adapt_ds"] else 0.875,
            pretraining=AUGREG_DATASETS[found["ds"]][0],
            dataset=dataset,
            source="arXiv 2106.10270",
            licence="Apache-2.0",
        )
    )


def parse_vtab(stem):
    """The BiT-M model fine-tuned on a task of VTAB-1k with that file name, ".npz" left out.

    Its resolution is the one that BiT-HyperRule takes for images of that task's size (section 3.3 of its paper).

    >>> parse_vtab("BiT-M-R50x1-run0-caltech101").num_classes
    102
    """
    found = match_stem(VTAB_STEM, stem, VTAB_FIELDS, "BiT-M-{model}-run{run}-{task}")
    large = 480 if found["model"] == "R152x4" else 384
    return with_sizes(
        PublicCheckpoint(
            url=f"{VTAB_ROOT}{stem}.npz",
            variant=found["model"],
            collection="vtab",
            num_classes=VTAB_TASKS[found["task"]],
            resolution=128 if found["task"] in SMALL_IMAGES else large,
            pretraining="imagenet21k",
            dataset=found["task"],
            source="arXiv 1912.11370",
            licence="Apache-2.0",
        )
    )


COLLECTIONS = {"augreg": parse_augreg, "vtab": parse_vtab}
