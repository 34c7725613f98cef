from .classifiers import ExportedModel, open_classifier, open_model
from .embedding import embed, embed_each, embed_files
from .predicting import Prediction, predict, predict_each
from .segmenting import segment, segment_each
from .vector_files import Vectors, read_vectors
from .vector_search import nearest

__all__ = [
    "ExportedModel",
    "Prediction",
    "Vectors",
    "embed",
    "embed_each",
    "embed_files",
    "nearest",
    "open_classifier",
    "open_model",
    "predict",
    "predict_each",
    "read_vectors",
    "segment",
    "segment_each",
]
