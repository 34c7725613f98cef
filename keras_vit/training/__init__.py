"""Training: where (strategies), how (optimizers, schedules, recipes), and never losing work (runs).

>>> strategy = keras_vit.training.strategy("auto")
>>> with strategy.scope():
...     model = keras_vit.zoo.load("ViT-B/16", num_classes=10, image_size=384)
...     recipe = keras_vit.training.recipe("finetune-cifar10")
...     recipe.compile(model)
>>> model.fit(train, validation_data=val, callbacks=recipe.callbacks("runs/1"))
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
