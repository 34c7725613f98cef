from .compute import Cost, core_days, cost, pretraining_exaflops
from .evaluating import evaluate
from .few_shot_protocol import FewShot, evaluate_few_shot, extract_features
from .least_squares import few_shot
from .masked_patches import draw_masked_patches
from .mistakes import Predictions, collect_predictions, draw_mistakes
from .multi_label import MultiLabelEvaluation, evaluate_multi_label
from .paper import published
from .scores import Evaluation, Share

__all__ = [
    "Cost",
    "Evaluation",
    "FewShot",
    "MultiLabelEvaluation",
    "Predictions",
    "Share",
    "collect_predictions",
    "core_days",
    "cost",
    "draw_masked_patches",
    "draw_mistakes",
    "evaluate",
    "evaluate_few_shot",
    "evaluate_multi_label",
    "extract_features",
    "few_shot",
    "pretraining_exaflops",
    "published",
]
