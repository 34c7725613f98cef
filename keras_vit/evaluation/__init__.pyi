from .mistakes import Predictions, collect_predictions, draw_mistakes

__all__ = [
    "Predictions",
    "collect_predictions",
    "draw_mistakes",
]
