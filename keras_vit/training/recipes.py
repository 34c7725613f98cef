"""`Recipe`: a row with the settings of a training; it makes the optimizer, compiles a model and makes its callbacks.

The papers' rows are in recipe_rows.py, `recipe(name)` is in scaling.py. Keras and TensorFlow are imported only when a
recipe is used, so that rows can be listed without them.
"""

from __future__ import annotations

import dataclasses
import logging
import pkgutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from keras_vit.data.augment.augmentations import find_augmentation
from keras_vit.errors import (
    COUNT,
    POSITIVE,
    ConfigError,
    Range,
    UnknownNameError,
    describe_unknown,
    require_backend,
    require_within,
)
from keras_vit.models.config import PositionEmbeddingKind

if TYPE_CHECKING:
    import os
    from typing import Unpack

    import keras

log = logging.getLogger("keras_vit")

LAYER_DECAY = Range(2.0**-126, 1, "in (0, 1], such as 0.75")
SHARE = Range(0, 1 - 2.0**-24, "in [0, 1), such as 0.1")  # below 1 in float32
NOT_NEGATIVE = POSITIVE._replace(least=0, text="0 or a positive number in the range of float32")


UPDATE = ("weight_decay", "global_clipnorm", "momentum_dtype")
# The epsilon of the authors' code, the default of flax.optim.Adam and optax; Keras' is 1e-7.
OPTIMIZERS = {"SGD": {"momentum": 0.9}, "Adam": {"epsilon": 1e-8}}
# {name in a recipe: class of keras_vit.training}
DECAYS = {
    "cosine": "WarmupCosine",
    "linear": "WarmupLinear",
    "constant": "WarmupConstant",
    "staircase": "WarmupStaircase",
}
LOSSES = {"softmax": "SoftmaxLoss", "pixels": "PixelLoss", "sigmoid": "SigmoidLoss", "squared-error": "SquaredError"}


def make(name, **arguments):
    """An instance of a class of keras_vit.training, which is imported only now."""
    return pkgutil.resolve_name(f"keras_vit.training:{name}")(**arguments)


class RecipeChanges(TypedDict, total=False):
    """The fields of a `Recipe` except its name, source and length, for type checkers and editors."""

    optimizer: str
    learning_rate: float
    decay: str
    warmup_steps: int
    boundaries: tuple[int, ...]
    weight_decay: float | None
    global_clipnorm: float | None
    momentum_dtype: str | None
    ema_momentum: float | None
    dropout_rate: float
    representation_size: int | bool | None
    label_smoothing: float
    loss: str
    head_bias: float | None
    image_size: int | None
    augmentation: str
    learning_rates: tuple[float, ...]
    development: float | None
    epochs_choices: tuple[float, ...]
    models: tuple[str, ...]
    classifier: Literal["token", "gap", "patches"] | None
    position_embedding: PositionEmbeddingKind | None
    stochastic_depth_rate: float


# A grid has single values, not lists; the other fields describe the recipe's source.
NOT_SEARCHED = {"boundaries", "learning_rates", "development", "epochs_choices", "models"}
SEARCHABLE = ("steps", *(name for name in RecipeChanges.__annotations__ if name not in NOT_SEARCHED))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """The settings of a training.

    Args:
        name, source: the row's name, and the source of its numbers.
        optimizer: a name in OPTIMIZERS: "SGD" (momentum 0.9) or "Adam" (0.9 and 0.999).
        learning_rate: the peak, at `batch_size`.
        decay: a name in DECAYS: "cosine", "linear", "constant" or "staircase" (with `boundaries`, in updates).
        steps: updates; or None with `epochs` passes over `examples`.
        warmup_steps: updates of linear warmup.
        weight_decay: decoupled, of kernels, times the learning rate (Keras' and PyTorch's convention).
        ema_momentum: momentum of the averaged weights (Polyak averaging); None for no averaging.
        representation_size: width of the tanh layer before the head (section 3.1); True for the model's hidden_size.
        loss: a name in LOSSES: "softmax", "pixels" (for masks), "sigmoid" or "squared-error"; `head_bias` is the
            initial value of the head's bias.
        image_size: in pixels; None for the model's own.
        augmentation: row of `keras_vit.data.AUGMENTATIONS`.
        learning_rates: the grid to search (Appendix B.1.1); `development`: the share of the training set to search on.
        epochs_choices: the numbers of epochs that the source gives.
        models: the variants for which the source gives the row, if it says so.
        classifier, position_embedding: those of the source, if they differ from the models' defaults; None for the
            model's own.
        stochastic_depth_rate: rate in the last encoder block, from 0 in the first; see `VisionTransformer`.

    Raises:
        ConfigError: if a number is out of range.
        UnknownNameError: if there is no such optimizer, decay or loss.

    >>> recipe = keras_vit.training.recipe("finetune-cifar10", image_size=32)
    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None, num_classes=10, **recipe.model_arguments)
    >>> recipe.compile(model)
    """

    name: str
    source: str
    optimizer: str
    learning_rate: float
    batch_size: int
    decay: str = "cosine"
    steps: int | None = None
    epochs: float | None = None
    examples: int | None = None
    warmup_steps: int = 0
    boundaries: tuple[int, ...] = ()
    weight_decay: float | None = None
    global_clipnorm: float | None = 1.0
    momentum_dtype: str | None = None
    ema_momentum: float | None = None
    dropout_rate: float = 0.0
    representation_size: int | bool | None = None
    label_smoothing: float = 0.0
    loss: str = "softmax"
    head_bias: float | None = None
    image_size: int | None = 224
    augmentation: str = "inception"
    learning_rates: tuple[float, ...] = ()
    development: float | None = None
    epochs_choices: tuple[float, ...] = ()
    models: tuple[str, ...] = ()
    classifier: Literal["token", "gap", "patches"] | None = None
    position_embedding: PositionEmbeddingKind | None = None
    stochastic_depth_rate: float = 0.0

    def __post_init__(self):
        require_within(COUNT, batch_size=self.batch_size, steps=self.steps, examples=self.examples)
        require_within(POSITIVE, learning_rate=self.learning_rate, epochs=self.epochs)
        require_within(COUNT, total_steps=self.total_steps)
        require_within(COUNT._replace(least=0, text="a whole number, 0 or more"), warmup_steps=self.warmup_steps)
        shares = ("dropout_rate", "stochastic_depth_rate", "label_smoothing", "ema_momentum")
        require_within(SHARE, **{name: getattr(self, name) for name in shares})
        require_within(NOT_NEGATIVE, weight_decay=self.weight_decay, global_clipnorm=self.global_clipnorm)
        for kind, rows in (("optimizer", OPTIMIZERS), ("decay", DECAYS), ("loss", LOSSES)):
            if (name := getattr(self, kind)) not in rows:
                raise UnknownNameError(describe_unknown(kind, name, rows))
        find_augmentation(self.augmentation)

    @property
    def total_steps(self) -> int:
        """The number of updates in the whole training."""
        if self.steps:
            return self.steps
        if not (self.epochs and self.examples):
            raise ConfigError(f"The length of {self.name} is unknown. Give steps, or epochs and examples.")
        return max(1, round(self.epochs * self.examples / self.batch_size))

    @property
    def images_seen(self) -> int:
        """The number of images in the whole training, counted at each visit."""
        return self.total_steps * self.batch_size

    @property
    def model_arguments(self) -> dict[str, Any]:
        """The recipe's arguments for `zoo.load`: size, dropout and, if set, hidden layer, classifier, positions."""
        arguments: dict[str, Any] = {"image_size": self.image_size, "dropout_rate": self.dropout_rate}
        for name in ("representation_size", "classifier", "position_embedding"):
            if (value := getattr(self, name)) is not None:
                arguments[name] = value
        if self.stochastic_depth_rate:
            arguments["stochastic_depth_rate"] = self.stochastic_depth_rate
        return arguments

    def with_(self, **changes: Unpack[RecipeChanges]) -> Recipe:
        """A copy with other values of these fields; nothing is scaled."""
        return dataclasses.replace(self, **changes)

    def make_schedule(self) -> keras.optimizers.schedules.LearningRateSchedule:
        """The learning rate over the steps of the run."""
        total, warmup = self.total_steps, min(self.warmup_steps, self.total_steps - 1)
        more = {"boundaries": self.boundaries} if self.decay == "staircase" else {}
        return make(DECAYS[self.decay], peak=self.learning_rate, total_steps=total, warmup_steps=warmup, **more)

    def make_optimizer(self, **extra: Any) -> keras.optimizers.Optimizer:
        """The recipe's optimizer; `extra` holds further arguments of its class."""
        averaging = {"use_ema": True, "ema_momentum": self.ema_momentum} if self.ema_momentum is not None else {}
        update = {name: getattr(self, name) for name in UPDATE} | OPTIMIZERS[self.optimizer]
        return make(self.optimizer, learning_rate=self.make_schedule(), **{**update, **averaging, **extra})

    def make_loss(self, dtype: str = "float32") -> keras.losses.Loss:
        """The recipe's loss for logits, computed in `dtype`."""
        smoothing = {} if self.loss == "squared-error" else {"label_smoothing": self.label_smoothing}
        return make(LOSSES[self.loss], dtype=dtype, **smoothing)

    def compile(
        self,
        model: keras.Model,
        *,
        microbatches: int = 1,
        layer_decay: float | None = None,
        steps_per_execution: int = 1,
        remat: bool = False,
        metrics: Sequence[keras.metrics.Metric] | None = None,
        **extra: Any,
    ) -> None:
        """Compiles `model` in place: call it in the strategy's scope.

        Args:
            model: a built model with the layer "head"; or a `MaskedPatchModel`: its target decides the loss.
            microbatches: number of parts of each replica's batch. Memory holds one at a time; their gradients are
                summed before the update.
            layer_decay: factor of the learning rate per layer, see `keras_vit.training.layer_decay`; None for 1.
            steps_per_execution: see `keras.Model.compile`.
            remat: whether to recompute the inner values of blocks for the gradient, to save memory; see
                `Classifier.remat`.
            metrics: metrics in place of the accuracy, for a loss of classes.
            extra: arguments of the optimizer.

        Raises:
            ConfigError: when the model cannot follow the recipe.
        """
        import keras

        from keras_vit.layers.base import wide_type
        from keras_vit.training.losses import Accuracy

        objective = getattr(model, "objective", None)
        recipe = self.with_(**objective.recipe_changes) if objective else self
        if metrics is None:
            metrics = [Accuracy()] if recipe.loss != "squared-error" else []
        recipe.check_model(model, microbatches, remat)
        if layer_decay is not None:
            from keras_vit.training import finetuning

            extra["rate_multipliers"] = finetuning.layer_decay(model, layer_decay)
        if recipe.head_bias is not None:
            bias = model.get_layer("head").bias
            bias.assign(keras.ops.full(bias.shape, recipe.head_bias, bias.dtype))
        if microbatches > 1:
            model.microbatches = microbatches
        if remat:
            model.remat = True
        model.compile(
            recipe.make_optimizer(**extra),
            recipe.make_loss(wide_type(model.compute_dtype)),
            weighted_metrics=list(metrics),
            steps_per_execution=steps_per_execution,
        )

    def check_model(self, model, microbatches, remat):
        """Refuses a model that cannot follow the recipe; warns of a missing hidden layer."""
        config = getattr(model, "config", None)
        for name in ("dropout_rate", "stochastic_depth_rate"):
            own, rate = getattr(self, name), getattr(config, name, None)
            if rate is not None and rate != own:
                raise ConfigError(
                    f"{self.name} trains with {name}={own}; the model has {rate}. Load it with "
                    f"**recipe.model_arguments, or change the recipe: recipe(name, {name}=...)."
                )
        for name in ("classifier", "position_embedding"):
            own, found = getattr(self, name), getattr(config, name, None)
            if own not in (None, found):
                raise ConfigError(
                    f"{self.name} is for models with {name}={own!r}. Received: {found!r}. Load the model with "
                    "**recipe.model_arguments."
                )
        if self.representation_size and getattr(config, "representation_size", 0) is None:
            log.warning(
                "%s trains with a hidden layer before the head (section 3.1), but the model has none. Load it with "
                "**recipe.model_arguments.",
                self.name,
            )
        if remat and not hasattr(model, "remat"):
            raise ConfigError(f"remat=True needs a model of this package. Received: a {type(model).__name__}.")
        if microbatches > 1:
            require_backend(f"microbatches={microbatches}", "tensorflow", "jax")
            if not hasattr(model, "microbatches"):
                raise ConfigError(f"microbatches need a model of this package. Received: a {type(model).__name__}.")
        if self.head_bias is not None and "head" not in [layer.name for layer in model.layers]:
            raise ConfigError(f"{self.name} sets the bias of the layer 'head', but the model has none.")

    def callbacks(
        self, folder: str | os.PathLike, every: int = 500, monitor: str = "val_accuracy"
    ) -> list[keras.callbacks.Callback]:
        """Callbacks for `model.fit` that keep the run in `folder` (see `Run`). It evaluates averaged weights, if any.

        Calling `fit` again with the same callbacks continues the run. Other callbacks for the same folder raise a
        RunError, and so does a folder with any file that the run would overwrite. To resume after a kill use `Run.fit`:
        it also continues at the right place of the data.
        """
        from keras_vit.training.runs.run import Run

        swap = self.ema_momentum is not None
        return Run(folder, every).callbacks(total=self.total_steps, monitor=monitor, swap=swap)
