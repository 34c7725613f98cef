"""Reads file names that follow the authors' grammar: AugReg's 52,268 and BiT's 285 fine-tuned on VTAB-1k."""

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
AUGREG_STEM = re.compile(
    rf"(?P<model>{'|'.join(AUGREG_MODELS)})-(?P<dataset>i1k|i21k)-(30|300)ep-lr_0\.001"
    r"-aug_(none|light[01]|medium[12]|strong[12])-wd_(0\.03|0\.1)-do_0\.[01]-sd_0\.[01]"
    r"(--(?P<task>imagenet2012|cifar100|oxford_iiit_pet|kitti|resisc45)-steps_(0|2|10|20)k"
    r"-lr_(0\.001|0\.003|0\.01|0\.03)-res_(?P<resolution>224|384))?"
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
VTAB_STEM = re.compile(rf"BiT-M-(?P<model>R50x1|R101x1|R50x3|R101x3|R152x4)-run[012]-(?P<task>{'|'.join(VTAB_TASKS)})")


def match_stem(pattern, stem, example):
    """The parts of a file name. Only the server knows which combinations of them exist."""
    found = pattern.fullmatch(stem)
    if found is None:
        raise UnknownNameError(f"The authors have no file {stem!r}. Their names are like {example}.")
    return found


def with_sizes(checkpoint):
    """Adds the numbers that follow from a checkpoint's configuration: parameters, and four bytes for each."""
    count = cost.count_parameters(checkpoint.config)
    return dataclasses.replace(checkpoint, parameters=count, bytes=4 * count, bytes_source="computed")


def parse_augreg(stem):
    """The checkpoint of AugReg (arXiv 2106.10270) with this file name, without ".npz".

    Raises:
        UnknownNameError: for a part that the authors' files do not have.

    >>> stem = "R26_S_32-i21k-300ep-lr_0.001-aug_none-wd_0.1-do_0.0-sd_0.0--kitti-steps_2k-lr_0.01-res_384"
    >>> parse_augreg(stem).num_classes
    4
    """
    found = match_stem(AUGREG_STEM, stem, "B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0")
    dataset, num_classes = AUGREG_DATASETS[found["task"] or found["dataset"]]
    return with_sizes(
        PublicCheckpoint(
            url=f"{AUGREG_ROOT}{stem}.npz",
            variant=AUGREG_MODELS[found["model"]],
            collection="augreg",
            num_classes=num_classes,
            classifier="token",
            resolution=int(found["resolution"] or 224),
            crop=None if found["task"] else 0.875,
            pretraining=AUGREG_DATASETS[found["dataset"]][0],
            dataset=dataset,
            source="arXiv 2106.10270",
            licence="Apache-2.0",
        )
    )


def parse_vtab(stem):
    """The BiT-M model, fine-tuned on a task of VTAB-1k, with this file name, without ".npz".

    Its resolution follows from the size of the task's images by BiT-HyperRule (section 3.3 of its paper).

    >>> parse_vtab("BiT-M-R50x1-run0-caltech101").num_classes
    102
    """
    found = match_stem(VTAB_STEM, stem, "BiT-M-R50x1-run0-svhn")
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


COLLECTIONS = {"augreg": (AUGREG_ROOT, parse_augreg), "vtab": (VTAB_ROOT, parse_vtab)}
