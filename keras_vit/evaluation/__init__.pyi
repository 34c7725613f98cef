from .compute import Cost, core_days, cost, pretraining_exaflops
from .evaluating import evaluate
from .few_shot_protocol import FewShot, evaluate_few_shot, extract_features
from .least_squares import few_shot
from .mistakes import Predictions, collect_predictions, draw_mistakes
from .paper import find_published, published
from .scores import Evaluation, Share
from .vtab import average_groups, draw_groups

__all__ = [
    "Cost",
    "Evaluation",
    "FewShot",
    "Predictions",
    "Share",
    "average_groups",
    "collect_predictions",
    "core_days",
    "cost",
    "draw_groups",
    "draw_mistakes",
    "evaluate",
    "evaluate_few_shot",
    "extract_features",
    "few_shot",
    "find_published",
    "pretraining_exaflops",
    "published",
]
