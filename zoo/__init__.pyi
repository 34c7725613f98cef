from .class_vectors import zero_shot
from .loading import load
from .names.listed_models import ListedModel, info, list
from .pushing import push
from .saving import save

__all__ = [
    "ListedModel",
    "info",
    "list",
    "load",
    "push",
    "save",
    "zero_shot",
]
