from . import data, errors, evaluation, export, inference, inspection, layers, models, training, zoo
from ._version import __version__
from .inference import predict

__all__ = [
    "__version__",
    "data",
    "errors",
    "evaluation",
    "export",
    "inference",
    "inspection",
    "layers",
    "models",
    "predict",
    "training",
    "zoo",
]
