"""`keras-vit probe` and `fewshot`: evaluate the frozen features of models on a dataset."""

import json
from typing import Annotated

import numpy as np
import typer

from keras_vit import data, evaluation, zoo
from keras_vit.commands.evaluate import open_splits
from keras_vit.commands.parsing import complete_place
from keras_vit.commands.shared import BatchSize, Data, Json, Model, import_keras, require_model, show_count
from keras_vit.console import Console, make_table, say
from keras_vit.data.datasets.schemes import require_dataset
from keras_vit.evaluation.paper import describe_published, find_published, name_variant

Split = Annotated[
    str | None,
    typer.Option(
        help="The images to test on, test or validation; by default test, or the held-out images if the dataset has "
        "no test split."
    ),
]


def tabulate_probes(found):
    """A table with a row for each model and a column for each probe: accuracy, and its interval in brackets."""
    table = make_table(None, "model", *next(iter(found.values())))
    for model, shares in found.items():
        cells = ((share.value, *share.interval) for share in shares.values())
        table.add_row(model, *(f"{100 * value:.1f} ({100 * low:.1f}-{100 * high:.1f})" for value, low, high in cells))
    return table


def probe_models(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            help="Models to compare: names that `keras-vit list` shows, checkpoints, folders of runs, or exported "
            "files that give vectors.",
            autocompletion=complete_place,
        ),
    ],
    dataset: Data,
    split: Split = None,
    shots: Annotated[
        list[int], typer.Option(min=1, help="Training images of each class; repeat the option for more columns.")
    ] = [5],  # noqa: B006, typer reads it
    batch_size: BatchSize = 64,
    as_json: Json = False,
) -> None:
    """Probes frozen features: accuracy in percent, with a 95 % interval (Wilson's) of the test images in brackets.

    Each model reads every image once. Its features are evaluated by the 20 nearest training images (as DINO's are), by
    logistic regression with a penalty chosen on a fifth of the training images, and by few shots as in the paper.

    Example: keras-vit probe ViT-B/14:dinov2 ViT-B/16:augreg-i21k --data cifar100
    """
    for model in models:
        require_model(model)
    require_dataset(dataset)
    import_keras()
    from keras_vit import inference

    train, test, _ = open_splits(dataset, split)
    found = {}
    for model in models:
        opened = inference.open_model(model)
        with data.data_errors(), show_count("images", train.num_examples + test.num_examples) as tell:
            first = evaluation.extract_features(opened, train, batch_size, tell)
            read = len(first[1])
            second = evaluation.extract_features(opened, test, batch_size, lambda done, read=read: tell(read + done))
        found[model] = evaluation.probe(first, second, shots)
    if as_json:
        print(json.dumps({name: {x: share.as_dict() for x, share in row.items()} for name, row in found.items()}))
    else:
        Console().print(tabulate_probes(found))


def tabulate_accuracies(accuracies):
    table = make_table(None, "shots", "accuracy", "deviation")
    for shots, values in accuracies.items():
        deviation = f"{np.std(values, ddof=1):.1%}" if len(values) > 1 else ""
        table.add_row(str(shots), f"{np.mean(values):.1%}", deviation)
    return table


def evaluate_few_shot(
    model: Model,
    dataset: Data,
    shots: Annotated[
        list[int], typer.Option(min=1, help="Training images of each class; repeat the option for more rows.")
    ] = [1, 5, 10, 25],  # noqa: B006, typer reads it
    split: Split = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many random choices of training images to average over.")] = 3,
    batch_size: BatchSize = 64,
    as_json: Json = False,
) -> None:
    """Measures few-shot accuracy: least squares on frozen features of a few training images per class (section 4.1).

    Example: keras-vit fewshot ViT-B/16:augreg-i21k --data cifar100 --shots 5 --shots 10
    """
    path = require_model(model)
    require_dataset(dataset)
    import_keras()
    train, test, split = open_splits(dataset, split)
    loaded = zoo.load(path)
    with data.data_errors():
        found = evaluation.evaluate_few_shot(loaded, train, test, shots, range(seeds), batch_size)
    if as_json:
        print(json.dumps(found))
    else:
        Console().print(tabulate_accuracies(found))
        for count in shots if split == "test" else ():
            for line in describe_published(find_published(name_variant(loaded.config), dataset, count)):
                say(f"the paper, {count} shots: {line}")
