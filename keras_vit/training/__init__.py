"""Training: where (strategies), how (optimizers, schedules, recipes), and never losing work (runs).

>>> strategy = keras_vit.training.strategy("auto")
>>> with strategy.scope():
...     model = keras_vit.zoo.load("ViT-B/16", num_classes=10, image_size=384)
...     recipe = keras_vit.training.recipe("finetune-cifar10")
...     recipe.compile(model)
>>> model.fit(train, validation_data=val, callbacks=recipe.callbacks("runs/1"))
"""

from keras_vit import _lazy

NAMES = {
    "Accuracy": "metrics",
    "Checkpoints": "runs.checkpoints",
    "Interrupted": "errors",
    "NotFiniteError": "errors",
    "Preempted": "errors",
    "RECIPES": "table",
    "Recipe": "recipes",
    "Run": "runs.run",
    "RunError": "errors",
    "SGD": "optimizers",
    "Adam": "optimizers",
    "AdamW": "optimizers",
    "WarmupConstant": "schedules",
    "WarmupCosine": "schedules",
    "WarmupLinear": "schedules",
    "WarmupStaircase": "schedules",
    "SigmoidLoss": "losses",
    "SoftmaxLoss": "losses",
    "development_split": "search",
    "freeze": "freezing",
    "layer_decay": "freezing",
    "load_weights": "runs.run",
    "recipe": "recipes",
    "search_learning_rate": "search",
    "strategy": "strategies",
}

__all__ = [
    "RECIPES",
    "SGD",
    "Accuracy",
    "Adam",
    "AdamW",
    "Checkpoints",
    "Interrupted",
    "NotFiniteError",
    "Preempted",
    "Recipe",
    "Run",
    "RunError",
    "SigmoidLoss",
    "SoftmaxLoss",
    "WarmupConstant",
    "WarmupCosine",
    "WarmupLinear",
    "WarmupStaircase",
    "development_split",
    "freeze",
    "layer_decay",
    "load_weights",
    "recipe",
    "search_learning_rate",
    "strategy",
]

__getattr__, __dir__ = _lazy.attributes(
    __name__, {name: f"keras_vit.training.{module}" for name, module in NAMES.items()}
)
