"""The small grid search over learning rates of Appendix B.1.1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from keras_vit.errors import ConfigError

if TYPE_CHECKING:
    import keras

    from keras_vit.training.recipes import Recipe


def development_split(dataset: tf.data.Dataset, share: float) -> tuple[tf.data.Dataset, tf.data.Dataset]:
    """(examples to train on, development examples) of a dataset of single examples: every k-th is held out.

    Args:
        dataset: a tf.data.Dataset in a fixed order, not batched.
        share: of the examples that are held out, in (0, 0.5]; `recipe.development` is the paper's.

    Raises:
        ConfigError: if the share is out of range.

    >>> import tensorflow as tf
    >>> train, held_out = development_split(tf.data.Dataset.range(100), 0.02)
    >>> [int(i) for i in held_out]
    [0, 50]
    """
    if not 0 < share <= 0.5:
        raise ConfigError(f"development_split needs a share in (0, 0.5]. Received: {share}.")
    k, n = round(1 / share), int(dataset.cardinality())

    def select(held_out):
        kept = dataset.enumerate().filter(lambda i, *example: (i % k == 0) == held_out)
        kept = kept.map(lambda i, example: example)
        if n < 0:  # unknown, or infinite
            return kept
        # A filter forgets how many examples there are, which progress bars and `fit` would like to know.
        return kept.apply(tf.data.experimental.assert_cardinality(-(-n // k) if held_out else n - -(-n // k)))

    return select(False), select(True)


def search_learning_rate(
    recipe: Recipe,
    make_model: Callable[[], keras.Model],
    train: tf.data.Dataset,
    development: tf.data.Dataset,
    rates: Sequence[float] | None = None,
    **compile_arguments: Any,
) -> tuple[float, dict[float, float]]:
    """Trains a new model at each rate on `train`; returns (the best rate, {rate: accuracy on `development`}).

    Args:
        recipe: a `Recipe`; `steps=` of `keras_vit.training.recipe` makes the search shorter than the run.
        make_model: function without arguments that makes a new model; enter the strategy's scope before the search.
        train: batches, endless or at least `recipe.total_steps` of them.
        development: batches for `evaluate`.
        rates: to try; None for the recipe's.
        compile_arguments: of `recipe.compile`.

    Raises:
        ConfigError: when there is no rate to try.

    >>> rate, scores = search_learning_rate(  # doctest: +SKIP
    ...     recipe, lambda: zoo.load("ViT-B/16", num_classes=10), train, held_out
    ... )
    >>> recipe = recipe.with_(learning_rate=rate)  # doctest: +SKIP
    """
    rates = tuple(rates or recipe.learning_rates)
    if not rates:
        raise ConfigError(f"{recipe.name} lists no learning rates; give rates=.")
    scores = {}
    for rate in rates:
        model = make_model()
        recipe.with_(learning_rate=rate).compile(model, **compile_arguments)
        model.fit(train, epochs=1, steps_per_epoch=recipe.total_steps, verbose=0, shuffle=False)
        scores[rate] = model.evaluate(development, verbose=0, return_dict=True)["accuracy"]
    return max(rates, key=scores.get), scores
