from .mistakes import mistakes

__all__ = [
    "mistakes",
]
