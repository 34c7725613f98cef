from .errors import Interrupted, NotFiniteError, Preempted, RunError
from .freezing import freeze, layer_decay
from .losses import SigmoidLoss, SoftmaxLoss
from .metrics import Accuracy
from .optimizers import SGD, Adam, AdamW
from .recipe_rows import RECIPES
from .recipes import Recipe
from .runs.checkpoints import Checkpoints
from .runs.run import Run, load_weights
from .scaling import recipe
from .schedules import WarmupConstant, WarmupCosine, WarmupLinear, WarmupStaircase
from .search import SearchResult, Trial, development_split, read_best, search_recipe
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
    "SearchResult",
    "SigmoidLoss",
    "SoftmaxLoss",
    "Trial",
    "WarmupConstant",
    "WarmupCosine",
    "WarmupLinear",
    "WarmupStaircase",
    "development_split",
    "freeze",
    "layer_decay",
    "load_weights",
    "read_best",
    "recipe",
    "search_recipe",
    "strategy",
]
