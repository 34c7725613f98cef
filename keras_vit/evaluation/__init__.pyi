from .compute import Cost, core_days, cost, pretraining_exaflops
from .evaluating import evaluate
from .few_shot_protocol import FewShot, evaluate_few_shot, extract_features
from .least_squares import few_shot
from .masked_patches import draw_masked_patches
from .mistakes import Predictions, collect_predictions, draw_mistakes
from .paper import published
from .scores import Evaluation, Share

__all__ = [
    "Cost",
    "Evaluation",
    "FewShot",
    "Predictions",
    "Share",
    "collect_predictions",
    "core_days",
    "cost",
    "draw_masked_patches",
    "draw_mistakes",
    "evaluate",
    "evaluate_few_shot",
    "extract_features",
    "few_shot",
    "pretraining_exaflops",
    "published",
]
