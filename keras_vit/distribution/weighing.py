"""The losses of a batch's parts, weighed so that they add up to the batch's: each output's by its own reduction."""

import contextlib
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_vit.distribution.replicas import replica_count

WEIGHTED_MEAN = "mean_with_sample_weight"


class Counts(NamedTuple):
    """The size of a batch, as float32 scalars: its examples, and what each output's mean loss is divided by."""

    examples: Any
    weights: list

    def weight(self):
        """The mean of the weights: the batch's own, unless outputs have different ones."""
        return sum(self.weights) / len(self.weights) if self.weights else self.examples


def divides_by_weights(model):
    """Whether a loss of `compile` divides by the sum of the sample weights, not by the number of examples."""
    return any(getattr(loss, "reduction", "") == WEIGHTED_MEAN for loss in keras.tree.flatten(model.loss))


def output_losses(model):
    """Keras' (path, loss, loss_weights, name) of each output's loss, once the losses of `compile` are built."""
    return (model._compile_loss and model._compile_loss._flat_losses) or []


def output_means(model):
    """Keras' running means of each output's loss; none for a model of one output."""
    return model._compile_loss.metrics if model._compile_loss else []


def count(model, data):
    """The counts of a batch of the model's data."""
    x, _, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    examples = ops.cast(ops.shape(keras.tree.flatten(x)[0])[0], "float32")

    def weight(path, loss):
        own = sample_weight
        for key in path if keras.tree.is_nested(own) else ():
            own = own[key]
        return examples if own is None or loss.reduction != WEIGHTED_MEAN else ops.sum(ops.cast(own, "float32"))

    return Counts(examples, [weight(path, loss) for path, loss, *_ in output_losses(model)])


def part_factors(model, part, total):
    """(the part's share of the examples, what each output's loss is multiplied by besides).

    Together they are the part's share of the output's weight. A sum has none; Keras does not divide it by the number of
    replicas, as it does means.
    """
    share = ops.divide_no_nan(part.examples, total.examples)
    weights = zip(output_losses(model), part.weights, total.weights, strict=True)
    own = [1 / replica_count() if entry.loss.reduction == "sum" else ops.divide_no_nan(n, m) for entry, n, m in weights]
    return share, [ops.divide_no_nan(of_output, share) for of_output in own]


@contextlib.contextmanager
def multiply_losses(model, factors):
    """Within it `compute_loss`, which gives the outputs' sum alone, multiplies each output's loss by its factor."""
    own = output_losses(model)
    weighed = [
        entry._replace(loss_weights=factor if entry.loss_weights is None else factor * entry.loss_weights)
        for entry, factor in zip(own, factors, strict=True)
    ]
    if own:
        model._compile_loss._flat_losses = weighed
    try:
        yield
    finally:
        if own:
            model._compile_loss._flat_losses = own
