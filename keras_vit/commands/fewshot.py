"""`keras-vit fewshot`: linear few-shot accuracy on frozen features, the paper's quick evaluation."""

import json
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from keras_vit import evaluation, zoo
from keras_vit.commands.evaluate import open_splits
from keras_vit.commands.shared import BatchSize, Data, Model, import_keras, require_model
from keras_vit.console import Console
from keras_vit.data.datasets.schemes import require_dataset
from keras_vit.evaluation.paper import describe_published, find_published, name_variant
from keras_vit.training.runs.folder import model_of


def tabulate_accuracies(accuracies):
    table = Table(box=None, header_style="bold")
    for heading in ("shots", "accuracy", "deviation"):
        table.add_column(heading, justify="right")
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
    split: Annotated[
        str | None,
        typer.Option(
            help="The images to test on, test or validation; by default test, or the held-out images if the dataset "
            "has no test split."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many random choices of training images to average over.")] = 3,
    batch_size: BatchSize = 64,
    as_json: Annotated[bool, typer.Option("--json", help="Print all accuracies as JSON.")] = False,
) -> None:
    """Few-shot accuracy: least squares from frozen features to classes, on a few training images of each (section 4.1).

    Example: keras-vit fewshot ViT-B/16:augreg-i21k --data cifar100 --shots 5 --shots 10
    """
    require_model(model)
    require_dataset(dataset)
    import_keras()
    train, test, split = open_splits(dataset, split)
    loaded = zoo.load(model_of(model))
    found = evaluation.evaluate_few_shot(loaded, train, test, shots, range(seeds), batch_size)
    if as_json:
        print(json.dumps(found))
    else:
        Console().print(tabulate_accuracies(found))
        for count in shots if split == "test" else ():
            for line in describe_published(find_published(name_variant(loaded.config), dataset, count)):
                Console().print(f"the paper, {count} shots: {line}", soft_wrap=True)
