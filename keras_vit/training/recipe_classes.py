"""The optimizers, decays and losses that a recipe can name: a row each. Imports neither Keras nor TensorFlow."""

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class ClassRow:
    """A class that a word in a recipe stands for, and the arguments that it is made with.

    Args:
        path: "module.Class" of keras_vit.training, imported when it is used.
        fields: of the recipe, which the class takes by the same names.
        arguments: fixed ones.
    """

    path: str
    fields: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def make(self, recipe, **extra):
        """An instance; `extra` arguments take precedence over the recipe's."""
        module, _, name = self.path.partition(".")
        found = getattr(importlib.import_module(f"keras_vit.training.{module}"), name)
        return found(**{name: getattr(recipe, name) for name in self.fields} | dict(self.arguments) | extra)


@dataclasses.dataclass(frozen=True)
class OptimizerRow(ClassRow):
    """An optimizer; at another batch size the learning rate follows (batch size) ** rate_power."""

    fields: tuple[str, ...] = ("weight_decay", "global_clipnorm", "momentum_dtype")
    rate_power: float = 1.0


@dataclasses.dataclass(frozen=True)
class LossRow(ClassRow):
    """A loss; accuracy is logged beside one `of_classes`."""

    fields: tuple[str, ...] = ("label_smoothing",)
    of_classes: bool = True


OPTIMIZERS = {
    "SGD": OptimizerRow("optimizers.SGD", arguments={"momentum": 0.9}),
    # The default epsilon of flax.optim.Adam and optax, which the authors' code keeps; Keras' is 1e-7.
    "Adam": OptimizerRow("optimizers.Adam", arguments={"epsilon": 1e-8}, rate_power=0.5),
}
DECAYS = {
    "cosine": ClassRow("schedules.WarmupCosine"),
    "linear": ClassRow("schedules.WarmupLinear"),
    "constant": ClassRow("schedules.WarmupConstant"),
    "staircase": ClassRow("schedules.WarmupStaircase", fields=("boundaries",)),
}
LOSSES = {
    "softmax": LossRow("losses.SoftmaxLoss"),
    "sigmoid": LossRow("losses.SigmoidLoss"),
    "squared-error": LossRow("losses.SquaredError", fields=(), of_classes=False),
}
