from .loading import load
from .names.listed_models import ListedModel, info, list
from .saving import save
from .zero_shot import zero_shot

__all__ = [
    "ListedModel",
    "info",
    "list",
    "load",
    "save",
    "zero_shot",
]
