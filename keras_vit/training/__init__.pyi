from .errors import Interrupted, NotFiniteError, Preempted, RunError
from .freezing import freeze, layer_decay
from .losses import SigmoidLoss, SoftmaxLoss
from .metrics import Accuracy
from .optimizers import SGD, Adam, AdamW
from .recipe_rows import RECIPES
from .recipes import Recipe
from .runs.checkpoints import Checkpoints
from .runs.run import Run
from .runs.weights import load_weights
from .scaling import recipe
from .schedules import WarmupConstant, WarmupCosine, WarmupLinear, WarmupStaircase
from .search import development_split, search_learning_rate
from .strategies import strategy

__all__ = [
    "RECIPES",
    "SGD",
    "Accuracy",
    "Adam",
    "AdamW",
    "Checkpoints",
    "Interrupted",
    "NotFiniteError",
    "Preempted",
    "Recipe",
    "Run",
    "RunError",
    "SigmoidLoss",
    "SoftmaxLoss",
    "WarmupConstant",
    "WarmupCosine",
    "WarmupLinear",
    "WarmupStaircase",
    "development_split",
    "freeze",
    "layer_decay",
    "load_weights",
    "recipe",
    "search_learning_rate",
    "strategy",
]
