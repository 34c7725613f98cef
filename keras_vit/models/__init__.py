"""The paper's models and the table of their variants. Importing it imports no Keras until a model is asked for."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
