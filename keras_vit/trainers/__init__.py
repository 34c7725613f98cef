"""Trainings from settings to a judged run: fine-tuning, pre-training, searches, the paper's protocol, VTAB.

>>> result = keras_vit.finetune("folder:photos", out="runs/1", model="ViT-B/16", epochs=20)  # doctest: +SKIP
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
