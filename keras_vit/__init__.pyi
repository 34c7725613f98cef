from . import data, errors, evaluation, export, inference, inspection, layers, models, trainers, training, zoo
from ._version import __version__
from .inference import embed, predict
from .trainers.train import finetune, pretrain

__all__ = [
    "__version__",
    "data",
    "embed",
    "errors",
    "evaluation",
    "export",
    "finetune",
    "inference",
    "inspection",
    "layers",
    "models",
    "predict",
    "pretrain",
    "trainers",
    "training",
    "zoo",
]
