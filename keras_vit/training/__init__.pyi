from .errors import Interrupted, NotFiniteError, Preempted, RunError
from .finetuning import (
    balanced_weights,
    count_trainable,
    enable_lora,
    freeze,
    freeze_first,
    layer_decay,
    weigh_classes,
    with_answers,
)
from .grid import SearchResult, Trial, search_recipe
from .losses import (
    Accuracy,
    MeanAveragePrecision,
    MeanIoU,
    PixelLoss,
    SigmoidLoss,
    SoftmaxLoss,
    SquaredError,
)
from .optimizers import (
    SGD,
    Adam,
    AdamW,
    WarmupConstant,
    WarmupCosine,
    WarmupLinear,
    WarmupStaircase,
)
from .recipe_rows import RECIPES
from .recipes import Recipe
from .runs.checkpoints import Checkpoints
from .runs.run import Run
from .runs.state import MaskedPatchModel, load_weights
from .scaling import choose_microbatches, recipe
from .strategies import strategy

__all__ = [
    "RECIPES",
    "SGD",
    "Accuracy",
    "Adam",
    "AdamW",
    "Checkpoints",
    "Interrupted",
    "MaskedPatchModel",
    "MeanAveragePrecision",
    "MeanIoU",
    "NotFiniteError",
    "PixelLoss",
    "Preempted",
    "Recipe",
    "Run",
    "RunError",
    "SearchResult",
    "SigmoidLoss",
    "SoftmaxLoss",
    "SquaredError",
    "Trial",
    "WarmupConstant",
    "WarmupCosine",
    "WarmupLinear",
    "WarmupStaircase",
    "balanced_weights",
    "choose_microbatches",
    "count_trainable",
    "enable_lora",
    "freeze",
    "freeze_first",
    "layer_decay",
    "load_weights",
    "recipe",
    "search_recipe",
    "strategy",
    "weigh_classes",
    "with_answers",
]
