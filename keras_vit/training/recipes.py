"""`recipe(name)`: a row of the table, scaled to what there is, that compiles a model and gives its callbacks."""

import dataclasses
import logging
import math

import keras

from keras_vit.errors import ConfigError, UnknownNameError, describe_unknown, require_tensorflow
from keras_vit.training import optimizers, schedules
from keras_vit.training.freezing import layer_decay as layer_decay_factors
from keras_vit.training.losses import LOSSES
from keras_vit.training.metrics import Accuracy
from keras_vit.training.numbers import require_counts, require_positive
from keras_vit.training.recipe_rows import HYPER_RULE, RECIPES, Row, hyper_rule_row, pretraining_row

SAME_LENGTH = 0.02  # an epoch of ImageNet without its development set is 1 % shorter: its warmup stays 10,000 steps
FAMILIES = ("pretrain-jft", "pretrain-imagenet21k", "bit-hyperrule")

log = logging.getLogger("keras_vit")


def recipe(name, *, batch_size=None, steps=None, epochs=None, examples=None, model=None, picture_size=None, **changes):
    """The recipe of that name, scaled by one rule.

    **The images seen stay.** Another batch size multiplies the number of steps, the warmup and the staircase's
    boundaries by (row's batch / new batch), and the learning rate by (new batch / row's batch) with SGD, by the square
    root of it with Adam. So Table 4's 500 steps of 512 images are 77 epochs of Pets at any batch size. (The row's own
    batch in microbatches, `compile(model, microbatches=16)`, is the same training exactly, to rounding.)

    Another length, by `steps`, or by `epochs` or the row's own epochs over other `examples`, multiplies the warmup and
    the boundaries by the ratio of images seen, unless that differs from 1 by less than 2 %. A `learning_rate` that is
    given is used as it is.

    Args:
        name: a row, as `finetune-cifar10`; or "pretrain-jft" and "pretrain-imagenet21k", which have a row for each
            `model`, or "bit-hyperrule", which follows `examples`, `picture_size` and `model`.
        batch_size: of all replicas together.
        steps, epochs: updates, at that batch size; or passes over `examples`.
        examples: of the training set.
        model: a variant, such as "ViT-L/16".
        picture_size: (height, width) in pixels that the dataset's images have; None for 96 x 96 or more.
        changes: any other field of `Row`.

    Raises:
        UnknownNameError: for a name that no row has.
        ConfigError: for changes that are not fields, numbers that no run can have, or a model without a row.

    >>> recipe("finetune-cifar10", batch_size=128).learning_rate, recipe("finetune-cifar10", batch_size=128).total_steps
    (0.0025, 40000)
    """
    fields = {field.name for field in dataclasses.fields(Row)} - {"name", "source"}
    if set(changes) - fields:
        raise ConfigError(f"A recipe has no {sorted(set(changes) - fields)[0]!r}; it has {', '.join(sorted(fields))}.")
    require_counts(batch_size=batch_size, steps=steps, examples=examples)
    require_positive(epochs=epochs)
    if steps is not None and epochs is not None:
        raise ConfigError(f"Give steps or epochs, not both. Received: steps={steps}, epochs={epochs}.")
    row = named(str(name).casefold(), examples, model, picture_size)
    return Recipe(dataclasses.replace(scaled(row, batch_size, steps, epochs, examples), **changes))


def named(name, examples, model, picture_size):
    """The row of that name; of a family's, the one for these data or this model."""
    folded = {key.casefold(): row for key, row in RECIPES.items()}
    if name == "bit-hyperrule" and examples is None:
        raise ConfigError("bit-hyperrule follows the size of the training set: give examples=.")
    if name == "bit-hyperrule" or folded.get(name) in HYPER_RULE:
        return hyper_rule_row(folded.get(name), examples, picture_size, model)
    if name in FAMILIES:
        if model is None:
            raise ConfigError(f'{name} has a row for each model: give model=, such as "ViT-B/16".')
        return pretraining_row(name.removeprefix("pretrain-"), model)
    if name not in folded:
        raise UnknownNameError(describe_unknown("recipe", name, (*FAMILIES, *RECIPES)))
    return folded[name]


def scaled(row, batch_size=None, steps=None, epochs=None, examples=None):
    """The row for another batch size or length; see `recipe` for the rule."""
    if epochs and not (examples or row.examples):
        raise ConfigError(f"{row.name} counts steps; with epochs= give examples= too.")
    target = dataclasses.replace(row, examples=examples or row.examples)
    if epochs:
        target = dataclasses.replace(target, steps=None, epochs=epochs)
    if batch_size:
        target = with_batch(target, batch_size)
    if steps:
        target = dataclasses.replace(target, steps=steps)
    length = target.images_seen / row.images_seen
    if abs(length - 1) < SAME_LENGTH:
        length = 1
    ratio = length * row.batch_size / target.batch_size
    return dataclasses.replace(
        target,
        warmup_steps=min(round(row.warmup_steps * ratio), target.total_steps - 1),
        boundaries=tuple(round(boundary * ratio) for boundary in row.boundaries),
    )


def with_batch(row, batch_size):
    """The row's steps and learning rate at another batch size: the images seen stay."""
    ratio = batch_size / row.batch_size
    rate = row.learning_rate * (ratio if row.optimizer == "SGD" else math.sqrt(ratio))
    steps = row.steps and max(1, round(row.steps / ratio))
    return dataclasses.replace(row, batch_size=batch_size, learning_rate=rate, steps=steps)


class Recipe:
    """A `Row` in use. The row's fields are its attributes, as in `recipe.learning_rate`; but `optimizer` and `loss`
    are methods that make those, whose names are `optimizer_name` and `loss_name`.

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

    @property
    def loss_name(self):
        return self.row.loss

    def __repr__(self):
        return f"Recipe({self.row})"

    @property
    def model_arguments(self):
        """What the recipe asks of `zoo.load`, of any family: size, dropout, and at pre-training the hidden layer."""
        arguments = {"image_size": self.row.image_size, "dropout_rate": self.row.dropout_rate}
        if self.row.representation_size is not None:
            arguments["representation_size"] = self.row.representation_size
        return arguments

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
        # The default of flax.optim.Adam and optax, which the authors' code keeps; Keras' is 1e-7.
        return optimizers.Adam(self.schedule(), **{"epsilon": 1e-8, **arguments})

    def loss(self):
        """The row's loss."""
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
            weighted_metrics=[Accuracy()],
            steps_per_execution=steps_per_execution,
        )

    def callbacks(self, folder, every=500, monitor="val_accuracy"):
        """Callbacks for `model.fit` that keep the run in `folder` (see `Run`); averaged weights are what it evaluates.

        They keep one run: `fit` with the same callbacks again goes on with it, and with others for the same folder is
        refused with a RunError, as it is where the folder holds anything that the run would overwrite. To go on after
        a kill use `Run.fit`, which also finds the data's place again.
        """
        from keras_vit.training.runs.run import Run

        swap = self.row.ema_momentum is not None
        return Run(folder, every).callbacks(total=self.row.total_steps, monitor=monitor, swap=swap)

    def check(self, model, microbatches):
        config = getattr(model, "config", None)
        rate = getattr(config, "dropout_rate", None)
        if rate is not None and rate != self.row.dropout_rate:
            raise ConfigError(
                f"{self.row.name} trains with dropout_rate={self.row.dropout_rate}; the model has {rate}. Load it with "
                "**recipe.model_arguments, or change the recipe: recipe(name, dropout_rate=...)."
            )
        if self.row.representation_size and getattr(config, "representation_size", 0) is None:
            log.warning(
                "%s trains with a hidden layer before the head (section 3.1), which the model does not have. Load it "
                "with **recipe.model_arguments.",
                self.row.name,
            )
        if microbatches > 1:
            require_tensorflow(f"microbatches={microbatches}")
            if not hasattr(model, "microbatches"):
                raise ConfigError(f"microbatches need a model of this package. Received: a {type(model).__name__}.")
        if self.row.head_bias is not None and "head" not in [layer.name for layer in model.layers]:
            raise ConfigError(f"{self.row.name} sets the bias of the layer 'head', which the model does not have.")
