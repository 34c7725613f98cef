from .augment.masked_patches import MaskedPatches
from .augment.rows import AUGMENTATIONS, Augmentation, hyper_rule_sizes
from .datasets.catalogue import CATALOGUE, VTAB
from .errors import DataError, data_errors
from .examples import Examples
from .loading import load
from .previewing import draw_preview

__all__ = [
    "AUGMENTATIONS",
    "CATALOGUE",
    "VTAB",
    "Augmentation",
    "DataError",
    "Examples",
    "MaskedPatches",
    "data_errors",
    "draw_preview",
    "hyper_rule_sizes",
    "load",
]
