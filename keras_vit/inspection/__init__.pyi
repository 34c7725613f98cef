from .attention import attention_weights, rollout
from .distance import attention_distance
from .embeddings import filters, position_similarity
from .intermediate import class_activation, feature_colours, features

__all__ = [
    "attention_distance",
    "attention_weights",
    "class_activation",
    "feature_colours",
    "features",
    "filters",
    "position_similarity",
    "rollout",
]
