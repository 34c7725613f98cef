from .augment.masked_patches import MaskedPatches
from .augment.rows import AUGMENTATIONS, Augmentation, hyper_rule_sizes
from .datasets.catalogue import CATALOGUE, VTAB
from .datasets.schemes import load
from .duplicates import Duplicates, find_duplicates, read_duplicates, read_images
from .errors import DataError
from .examples import Examples
from .previewing import draw_preview
from .reading.batches import data_errors

__all__ = [
    "AUGMENTATIONS",
    "CATALOGUE",
    "VTAB",
    "Augmentation",
    "DataError",
    "Duplicates",
    "Examples",
    "MaskedPatches",
    "data_errors",
    "draw_preview",
    "find_duplicates",
    "hyper_rule_sizes",
    "load",
    "read_duplicates",
    "read_images",
]
