from .class_vectors import zero_shot
from .fetch.hub import push
from .loading import load
from .names.listed_models import ListedModel, info, list
from .saving import save

__all__ = ["ListedModel", "info", "list", "load", "push", "save", "zero_shot"]
