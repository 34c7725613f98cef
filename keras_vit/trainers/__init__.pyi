from .judge import TrainingResult
from .protocol import run_protocol
from .search import run_search
from .settings import Settings
from .train import finetune, pretrain
from .vtab import run_vtab

__all__ = [
    "Settings",
    "TrainingResult",
    "finetune",
    "pretrain",
    "run_protocol",
    "run_search",
    "run_vtab",
]
