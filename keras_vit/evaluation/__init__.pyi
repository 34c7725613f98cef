from .evaluating import evaluate
from .least_squares import few_shot
from .mistakes import mistakes
from .paper import published
from .scores import Evaluation, Share

__all__ = ["Evaluation", "Share", "evaluate", "few_shot", "mistakes", "published"]
