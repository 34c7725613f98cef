"""`keras-vit evaluate`: how good a model is on a dataset, class by class."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from keras_vit import data, evaluation, zoo
from keras_vit.commands import import_keras
from keras_vit.console import Console
from keras_vit.data.datasets.schemes import describe_schemes
from keras_vit.files import write_whole
from keras_vit.training.runs.folder import describe_weights, model_of

WORST = 10  # classes that are printed
NAMES = ("evaluation.json", "mistakes.png")


def tabulate_classes(classes):
    """The classes that are recognized least, with how many of them and of their predictions are right."""
    table = Table(box=None, header_style="bold", title="Least recognized classes", title_justify="left")
    table.add_column("class", overflow="fold")
    for heading in ("images", "recall", "precision"):
        table.add_column(heading, justify="right")
    known = [score for score in classes if score.recall is not None]
    for score in sorted(known, key=lambda score: score.recall)[:WORST]:
        precision = "" if score.precision is None else f"{score.precision:.1%}"
        table.add_row(score.name, f"{score.count:,}", f"{score.recall:.1%}", precision)
    return table


def print_evaluation(found, console):
    console.print(f"top-1 accuracy     {found.top1}", soft_wrap=True)
    if found.top5:
        console.print(f"top-5 accuracy     {found.top5}", soft_wrap=True)
    console.print(f"calibration error  {found.calibration_error:.3f}")
    if found.images_per_second:
        console.print(f"images per second  {found.images_per_second:,.0f}")
    if found.classes:
        console.print(tabulate_classes(found.classes))


def evaluate_model(
    model: Annotated[
        str, typer.Argument(help="A name that `keras-vit list` shows, a checkpoint, or the folder of a run.")
    ],
    dataset: Annotated[str, typer.Option("--data", help=describe_schemes())],
    split: Annotated[str, typer.Option(help="The images to evaluate on: train, validation or test.")] = "test",
    out: Annotated[
        Path | None, typer.Option(help="A folder for evaluation.json and mistakes.png, which are replaced there.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Images at a time; it changes the time alone.")] = 64,
    as_json: Annotated[bool, typer.Option("--json", help="Print all numbers as JSON.")] = False,
) -> None:
    """Evaluates a model: top-1 and top-5 accuracy with a 95 % interval (Wilson's), calibration, and every class.

    Where images have several classes, as in ImageNet ReaL, each of them is right.

    Example: keras-vit evaluate runs/1 --data folder:photos --split test --out report
    """
    path = model_of(model)
    import_keras()
    loaded, examples = zoo.load(path), data.load(dataset, split)
    found = evaluation.evaluate(loaded, examples, batch_size)
    if as_json:
        print(json.dumps(found.as_dict()))
    else:
        if of_run := describe_weights(path):
            Console().print(of_run, soft_wrap=True)
        print_evaluation(found, Console())
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        with write_whole(out / NAMES[0]) as path:
            path.write_text(json.dumps(found.as_dict(), indent=1) + "\n", "utf-8")
        if found.classes:
            predictions = evaluation.collect_predictions(loaded, examples.evaluation(batch_size, loaded.preprocessing))
            with write_whole(out / NAMES[1]) as path:
                evaluation.draw_mistakes(predictions, examples.class_names, path)
