from . import mistakes

__all__ = [
    "mistakes",
]
