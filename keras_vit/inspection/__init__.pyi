from .attention import attention_distance, attention_weights, rollout
from .learned import class_activation, feature_colours, features, filters, position_similarity
from .page import report
from .plots import plot_attention_distance, plot_filters, plot_maps, plot_position_similarity

__all__ = [
    "attention_distance",
    "attention_weights",
    "class_activation",
    "feature_colours",
    "features",
    "filters",
    "plot_attention_distance",
    "plot_filters",
    "plot_maps",
    "plot_position_similarity",
    "position_similarity",
    "report",
    "rollout",
]
