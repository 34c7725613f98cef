"""`keras-vit probe`: what the frozen features of several models are worth on a dataset, one table."""

import json
from typing import Annotated

import typer

from keras_vit import data, evaluation
from keras_vit.commands.completion import complete_place
from keras_vit.commands.evaluate import open_splits
from keras_vit.commands.shared import BatchSize, Data, import_keras, require_model, show_count
from keras_vit.console import Console, make_table
from keras_vit.data.datasets.schemes import require_dataset


def tabulate_probes(found):
    """A row for each model, a column for each probe: accuracy, and its interval in brackets."""
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
    split: Annotated[
        str | None, typer.Option(help="The images to test on, test or validation; by default as `keras-vit fewshot`.")
    ] = None,
    shots: Annotated[
        list[int], typer.Option(min=1, help="Training images of each class; repeat the option for more columns.")
    ] = [5],  # noqa: B006, typer reads it
    batch_size: BatchSize = 64,
    as_json: Annotated[bool, typer.Option("--json", help="Print all numbers as JSON.")] = False,
) -> None:
    """Probes frozen features: accuracy in percent, with a 95 % interval (Wilson's) of the test images in brackets.

    Each model reads every image once. Its features are judged by the 20 nearest training images as DINO's are, by
    logistic regression, whose penalty is chosen on a fifth of the training images, and by few shots as the paper's.

    Example: keras-vit probe ViT-B/16:dinov2 ViT-B/16:augreg-i21k --data cifar100
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
