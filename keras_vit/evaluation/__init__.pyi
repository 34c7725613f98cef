from .least_squares import few_shot
from .mistakes import mistakes
from .paper import published

__all__ = ["few_shot", "mistakes", "published"]
