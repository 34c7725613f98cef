from .protocol import run_protocol as run_protocol
from .protocol import run_vtab as run_vtab
from .result import TrainingResult as TrainingResult
from .settings import Settings as Settings
from .train import finetune as finetune
from .train import pretrain as pretrain
