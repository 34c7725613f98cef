from .classifiers import ExportedModel, open_classifier
from .predicting import predict, predict_each
from .predictions import Prediction

__all__ = [
    "ExportedModel",
    "Prediction",
    "open_classifier",
    "predict",
    "predict_each",
]
