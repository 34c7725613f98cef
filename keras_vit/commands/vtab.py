"""`keras-vit vtab`: the 19 tasks of VTAB-1k."""

from pathlib import Path
from typing import Annotated

import typer

from keras_vit.commands.options import with_options_of
from keras_vit.commands.shared import Model, import_keras, require_model, try_folder
from keras_vit.console import Console, make_table
from keras_vit.evaluation import vtab as measures
from keras_vit.evaluation.paper import VTAB_TASKS
from keras_vit.trainers.choices import EVERY, choose_checkpoint
from keras_vit.trainers.settings import Settings
from keras_vit.training.errors import Interrupted, Preempted

OPTIONS = ("steps", "batch_size", "image_size", "microbatches", "strategy", "precision", "seed")


def print_results(console, settings, summary):
    """Prints a line per task and per mean, in percent, beside Table 9's; each mean is over the same tasks."""
    accuracies, others = summary["accuracies"], measures.published_tasks()
    table = make_table(None, "task", settings.model, *others)
    for task, value in accuracies.items():
        cells = (value, *(row[task] for row in others.values()))
        table.add_row(VTAB_TASKS[task], *(f"{100 * cell:.1f}" for cell in cells))
    table.add_section()
    same = [measures.average_groups({task: row[task] for task in accuracies}) for row in others.values()]
    for group, mean in summary["means"].items():
        table.add_row(f"mean: {group}", *(f"{100 * cell:.2f}" for cell in (mean, *(row[group] for row in same))))
    console.print(table)
    if len(accuracies) < len(measures.TASKS):
        console.print(f"These are {len(accuracies)} of VTAB's {len(measures.TASKS)} tasks, in all columns.")
    if summary["share_of_images"] < 1:
        console.print(f"Trained on {summary['share_of_images']:.2g} of the images that the paper's setting sees.")


@with_options_of(only=OPTIONS)
def train_vtab(
    *,
    model: Model,
    out: Annotated[
        Path, typer.Option(callback=try_folder, help="The folder of the results; it is made if it is missing.")
    ],
    tasks: Annotated[
        list[str] | None,
        typer.Option(help="Tasks, such as caltech101,dtd, for a trial with fewer than the 19; by default all."),
    ] = None,
    sweep: Annotated[
        bool,
        typer.Option(
            "--sweep",
            help="First choose one of two learning rates and one of two schedules for all tasks, on the 200 "
            "development examples of each: this adds some 19 times 4 trainings.",
        ),
    ] = False,
    every: Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")] = EVERY,
    **fields,
) -> None:
    """Fine-tunes a model on each of VTAB-1k's 19 tasks and prints their means beside the paper's (Table 9, Figure 2).

    Every task is trained on 1,000 examples by one setting, Table 4's: 2,500 steps of 512 images of 384 pixels at a
    learning rate of 0.01. After an interruption, the same command continues. TFDS fetches the data; resisc45,
    diabetic_retinopathy and sun397 may need a download by hand: the error names the source.

    Example: keras-vit vtab ViT-B/16 --out runs/vtab
    """
    settings = Settings(model=model, dataset="vtab/caltech101", **fields)  # each task replaces this dataset
    names = [name for text in tasks or () for name in text.replace(" ", "").split(",") if name]
    measures.find_tasks(names)
    require_model(choose_checkpoint(model))
    import_keras(find_devices=False)
    from keras_vit.commands.progress import FitProgress
    from keras_vit.trainers.protocol import run_vtab

    try:
        summary = run_vtab(settings, out, tasks=names, sweep_settings=sweep, every=every, progress=FitProgress)
    except (Interrupted, Preempted):
        print("The same command continues from here.", flush=True)
        raise
    print_results(Console(), settings, summary)
    Console().print(f"Everything is in {out}: results.json, vtab.csv, vtab.png, ...", soft_wrap=True)
