"""The Keras home of "An Image is Worth 16x16 Words" (arXiv 2010.11929): ViT, hybrid and ResNet (BiT).

>>> import keras_vit
>>> model = keras_vit.zoo.load("ViT-B/16")
>>> logits = model(images)  # (n, 224, 224, 3) in [-1, 1] -> (n, 1000)
>>> prediction = keras_vit.predict(model, "cat.jpg")  # names and probabilities
>>> vectors = keras_vit.embed(model, ["cat.jpg", "dog.jpg"])  # (n, d)
>>> result = keras_vit.finetune("folder:photos", out="runs/1")  # doctest: +SKIP

Rooms are imported when they are first used: layers, models, zoo, data, training, trainers, evaluation,
inspection, export, inference.
"""

import warnings
from pathlib import Path

import lazy_loader

from keras_vit import _registration, extras
from keras_vit._version import __version__
from keras_vit.errors import SHARED_FOLDER, point_from

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = point_from(__getattr__)
__all__ += ["__version__"]

extras.register()
_registration.register()
if Path(__file__).with_name("vit.py").exists():  # a file of the other project's
    warnings.warn(SHARED_FOLDER, stacklevel=2)
