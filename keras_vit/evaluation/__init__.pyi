from . import mistakes
from .compute import Cost, core_days, cost, pretraining_exaflops
from .evaluating import evaluate
from .few_shot_protocol import FewShot, evaluate_few_shot, extract_features
from .least_squares import few_shot
from .paper import published
from .scores import Evaluation, Share

__all__ = [
    "Cost",
    "Evaluation",
    "FewShot",
    "Share",
    "core_days",
    "cost",
    "evaluate",
    "evaluate_few_shot",
    "extract_features",
    "few_shot",
    "mistakes",
    "pretraining_exaflops",
    "published",
]
