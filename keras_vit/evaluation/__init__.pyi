from .least_squares import few_shot
from .mistakes import mistakes

__all__ = ["few_shot", "mistakes"]
