from . import data, errors, evaluation, export, inspection, layers, models, training, zoo
from ._version import __version__

__all__ = [
    "__version__",
    "data",
    "errors",
    "evaluation",
    "export",
    "inspection",
    "layers",
    "models",
    "training",
    "zoo",
]
