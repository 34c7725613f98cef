from .loading import load
from .names.registry import info, list
from .saving import save

__all__ = [
    "info",
    "list",
    "load",
    "save",
]
