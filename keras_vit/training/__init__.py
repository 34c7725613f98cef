"""Training: strategies (where), optimizers, schedules and recipes (how), and runs that lose no work.

>>> strategy = keras_vit.training.strategy("auto")
Training on ... replica...
>>> with strategy.scope():
...     recipe = keras_vit.training.recipe("finetune-cifar10", image_size=8)
...     model = keras_vit.zoo.load("ViT-Test/4", weights=None, num_classes=10, **recipe.model_arguments)
...     recipe.compile(model)
>>> model.fit(train, validation_data=val, callbacks=recipe.callbacks("runs/1"))  # doctest: +SKIP
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
