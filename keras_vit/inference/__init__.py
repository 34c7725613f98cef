"""Predictions: from images of any kind to the most likely classes, masks or vectors.

>>> model = keras_vit.zoo.load("ViT-Test/4", weights=None, labels=["cat", "dog"])
>>> keras_vit.predict(model, np.zeros((40, 50, 3), "uint8")).name  # random weights, with a zero head
'cat'
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
