"""`recipe(name)`: a row of the table, scaled to what there is, that compiles a model and gives its callbacks."""

import dataclasses
import math

import keras

from keras_vit.errors import ConfigError, UnknownNameError
from keras_vit.models.config import unknown
from keras_vit.training import optimizers, schedules
from keras_vit.training.freezing import layer_decay as layer_decay_factors
from keras_vit.training.losses import LOSSES
from keras_vit.training.numbers import require_counts, require_positive
from keras_vit.training.table import RECIPES, Row, hyper_rule_row


def recipe(name, *, batch_size=None, steps=None, epochs=None, examples=None, **changes):
    """The recipe of that name, scaled by one rule.

    Another batch size multiplies the learning rate by the ratio (SGD) or by its square root (Adam); where the row
    counts epochs, the steps follow. Another number of steps, given or following from epochs and examples, multiplies
    the warmup and the staircase's boundaries by the ratio. A `learning_rate` that is given is used as it is.

    Args:
        name: a row, as `finetune-cifar10`; "bit-hyperrule" picks its row by `examples`.
        batch_size: of all replicas together.
        steps, epochs: updates, or passes over `examples`.
        examples: of the training set.
        changes: any other field of `Row`.

    Raises:
        UnknownNameError: for a name that no row has.
        ConfigError: for changes that are no fields, or numbers that no run can have.

    >>> recipe("finetune-cifar10", batch_size=128).learning_rate
    0.0025
    """
    folded = {key.casefold(): row for key, row in RECIPES.items()}
    if name == "bit-hyperrule" and examples:
        row = hyper_rule_row(examples)
    elif name.casefold() in folded:
        row = folded[name.casefold()]
    else:
        raise UnknownNameError(unknown("recipe", name, RECIPES))
    fields = {field.name for field in dataclasses.fields(Row)} - {"name", "source"}
    if set(changes) - fields:
        raise ConfigError(f"A recipe has no {sorted(set(changes) - fields)[0]!r}; it has {', '.join(sorted(fields))}.")
    require_counts(batch_size=batch_size, steps=steps, examples=examples)
    require_positive(epochs=epochs)
    if steps is not None and epochs is not None:
        raise ConfigError(f"Give steps or epochs, not both. Received: steps={steps}, epochs={epochs}.")
    return Recipe(dataclasses.replace(scaled(row, batch_size, steps, epochs, examples), **changes))


def scaled(row, batch_size=None, steps=None, epochs=None, examples=None):
    """The row for another batch size or number of steps; see `recipe` for the rule."""
    before = row.total_steps
    if batch_size:
        ratio = batch_size / row.batch_size
        rate = row.learning_rate * (ratio if row.optimizer == "SGD" else math.sqrt(ratio))
        row = dataclasses.replace(row, batch_size=batch_size, learning_rate=rate)
    if examples:
        row = dataclasses.replace(row, examples=examples)
    if epochs:
        if not row.examples:
            raise ConfigError(f"{row.name} counts steps; with epochs= give examples= too.")
        row = dataclasses.replace(row, steps=None, epochs=epochs)
    if steps:
        row = dataclasses.replace(row, steps=steps)
    if row.total_steps == before:
        return row
    ratio = row.total_steps / before
    warmup = min(round(row.warmup_steps * ratio), row.total_steps - 1)
    return dataclasses.replace(
        row, warmup_steps=warmup, boundaries=tuple(round(boundary * ratio) for boundary in row.boundaries)
    )


class Recipe:
    """A `Row` in use; the row's fields are its attributes, as in `recipe.learning_rate`.

    >>> recipe = keras_vit.training.recipe("finetune-cifar10")
    >>> model = keras_vit.zoo.load("ViT-B/16", num_classes=10, **recipe.model_arguments)
    >>> recipe.compile(model)
    """

    def __init__(self, row):
        self.row = row

    def __getattr__(self, name):
        if name == "row":
            raise AttributeError(name)
        return getattr(self.row, name)

    @property
    def optimizer_name(self):
        return self.row.optimizer

    def __repr__(self):
        return f"Recipe({self.row})"

    @property
    def model_arguments(self):
        """What the recipe asks of `zoo.load`."""
        return {"image_size": self.row.image_size, "dropout_rate": self.row.dropout_rate}

    def with_(self, **changes):
        """The same recipe with other fields, not scaled."""
        return Recipe(dataclasses.replace(self.row, **changes))

    def schedule(self):
        row = self.row
        steps = row.total_steps, min(row.warmup_steps, row.total_steps - 1)
        if row.decay == "staircase":
            return schedules.WarmupStaircase(row.learning_rate, *steps, boundaries=row.boundaries)
        kind = {"cosine": schedules.WarmupCosine, "linear": schedules.WarmupLinear}[row.decay]
        return kind(row.learning_rate, *steps)

    def optimizer(self, **extra):
        """The row's optimizer; `extra` arguments are the optimizer's own."""
        row = self.row
        arguments = {
            "weight_decay": row.weight_decay,
            "global_clipnorm": row.global_clipnorm,
            "momentum_dtype": row.momentum_dtype,
            "use_ema": row.ema_momentum is not None,
            "ema_momentum": row.ema_momentum or 0.99,
            **extra,
        }
        if row.optimizer == "SGD":
            return optimizers.SGD(self.schedule(), momentum=0.9, **arguments)
        return optimizers.Adam(self.schedule(), **arguments)

    def loss(self):
        return LOSSES[self.row.loss](label_smoothing=self.row.label_smoothing)

    def compile(self, model, *, microbatches=1, layer_decay=None, steps_per_execution=1, **extra):
        """Compiles `model` in place: call it in the strategy's scope.

        Args:
            model: built, with the layer "head".
            microbatches: parts of each replica's batch, one after the other in memory, before the one update.
            layer_decay: rate per depth of the learning rate, see `keras_vit.training.layer_decay`; None for none.
            steps_per_execution: see `keras.Model.compile`.
            extra: arguments of the optimizer.

        Raises:
            ConfigError: when the model cannot follow the recipe.
        """
        self.check(model, microbatches)
        if layer_decay is not None:
            extra["rate_multipliers"] = layer_decay_factors(model, layer_decay)
        if self.row.head_bias is not None:
            bias = model.get_layer("head").bias
            bias.assign(keras.ops.full(bias.shape, self.row.head_bias, bias.dtype))
        if microbatches > 1:
            model.microbatches = microbatches
        model.compile(
            self.optimizer(**extra),
            self.loss(),
            weighted_metrics=["accuracy"],
            steps_per_execution=steps_per_execution,
        )

    def callbacks(self, folder, every=500, monitor="val_accuracy"):
        """Callbacks for `model.fit` that keep the run in `folder` (see `Run`); averaged weights are what it evaluates.

        They keep one run: `fit` with the same callbacks again goes on with it, and with others for the same folder is
        refused with a RunError, as it is where the folder holds anything that the run would overwrite. To go on after
        a kill use `Run.fit`, which also finds the data's place again.
        """
        from keras_vit.training.runs import Run

        swap = self.row.ema_momentum is not None
        return Run(folder, every).callbacks(total=self.row.total_steps, monitor=monitor, swap=swap)

    def check(self, model, microbatches):
        rate = getattr(getattr(model, "config", None), "dropout_rate", None)
        if rate is not None and rate != self.row.dropout_rate:
            raise ConfigError(
                f"{self.row.name} trains with dropout_rate={self.row.dropout_rate}; the model has {rate}. Load it with "
                "**recipe.model_arguments, or change the recipe: recipe(name, dropout_rate=...)."
            )
        if microbatches > 1 and not hasattr(model, "microbatches"):
            raise ConfigError("microbatches need a model of this package; a keras.Model of your own has none.")
        if self.row.head_bias is not None and "head" not in [layer.name for layer in model.layers]:
            raise ConfigError(f"{self.row.name} sets the bias of the layer 'head', which the model does not have.")
