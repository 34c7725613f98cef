"""The small grid search over learning rates of Appendix B.1.1."""

import tensorflow as tf

from keras_vit.errors import ConfigError


def development_split(dataset, share):
    """(examples to train on, development examples) of a dataset of single examples: every k-th is held out.

    Args:
        dataset: a tf.data.Dataset in a fixed order, not batched.
        share: of the examples that are held out, in (0, 0.5]; `recipe.development` is the paper's.

    Raises:
        ConfigError: for another share.

    >>> train, held_out = development_split(examples, 0.02)
    """
    if not 0 < share <= 0.5:
        raise ConfigError(f"development_split needs a share in (0, 0.5]. Received: {share}.")
    k, n = round(1 / share), int(dataset.cardinality())

    def part(held_out):
        kept = dataset.enumerate().filter(lambda i, *example: (i % k == 0) == held_out)
        kept = kept.map(lambda i, example: example)
        if n < 0:
            return kept
        return kept.apply(tf.data.experimental.assert_cardinality(-(-n // k) if held_out else n - -(-n // k)))

    return part(False), part(True)


def search_learning_rate(recipe, make_model, train, development, rates=None, **compile_arguments):
    """Trains a new model at each rate on `train`; gives (the best rate, {rate: accuracy on `development`}).

    Args:
        recipe: a `Recipe`; `steps=` of `keras_vit.training.recipe` makes the search shorter than the run.
        make_model: function of nothing to a new model; called in the strategy scope that the caller has entered.
        train: batches, endless or at least `recipe.total_steps` of them.
        development: batches for `evaluate`.
        rates: to try; None for the recipe's.
        compile_arguments: of `recipe.compile`.

    Raises:
        ConfigError: when there is no rate to try.

    >>> rate, scores = search_learning_rate(recipe, lambda: zoo.load("ViT-B/16", num_classes=10), train, held_out)
    >>> recipe = recipe.with_(learning_rate=rate)
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
