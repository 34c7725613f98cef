from .protocol import run_protocol, run_vtab
from .report import TrainingResult
from .settings import Settings
from .train import finetune, pretrain

__all__ = [
    "Settings",
    "TrainingResult",
    "finetune",
    "pretrain",
    "run_protocol",
    "run_vtab",
]
