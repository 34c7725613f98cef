"""The end of a training: the best weights judged, the files of the run, and what to type next."""

import shlex

import numpy as np
from rich.table import Table

from keras_vit import training
from keras_vit.console import Console
from keras_vit.evaluation import Share, collect_predictions, draw_mistakes, write_mistakes
from keras_vit.training.runs.callbacks import is_chief
from keras_vit.training.runs.folder import CHECKPOINTS, EVENTS, FILES, read_monitor
from keras_vit.training.runs.history import find_best, read_rows

OTHERS = {CHECKPOINTS: "what --resume continues from", EVENTS: "the metrics, for TensorBoard"}


def load_best(model, folder):
    """Gives the model a run's weights of the best epoch, or leaves its last where there are none; says which."""
    rows = read_rows(folder / "metrics.csv")
    best = find_best(rows, read_monitor(folder))
    if best is None or not (folder / "best.weights.npz").is_file():
        return "the last step"
    training.load_weights(model, folder / "best.weights.npz")
    return f"epoch {best['epoch']}, the best of {len(rows)}"


def judge(run, model, examples, batches):
    """(share of right answers of the run's best weights on the examples, what they are); writes the mistakes.

    `batches` are those of `examples.evaluation`. The model then has these weights: those of the best epoch, or its
    last where nothing was held out.
    """
    which = load_best(model, run.folder)
    found = collect_predictions(model, batches)
    if is_chief(model):
        with run.writing("mistakes.png") as path:
            draw_mistakes(found, examples.class_names, path)
        if (paths := examples.paths()) is not None:
            with run.writing("mistakes.csv") as path:
                write_mistakes(found, examples.class_names, paths, path)
    return Share(int(np.sum(found.labels == found.predicted)), len(found.labels)), which


def tabulate_files(folder):
    """The files of a run and what each of them is."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, meaning in {**FILES, **OTHERS}.items():
        if (folder / name).exists():
            table.add_row(name + ("/" if name in OTHERS else ""), meaning)
    return table


def list_next_commands(folder, dataset, split, has_head=True):
    """What one types after a training; `split` is what it was judged by, or None."""
    place = shlex.quote(str(folder))
    if not has_head:
        return [f"keras-vit finetune --model {place} --data folder:PHOTOS --out {shlex.quote(f'{folder}-finetuned')}"]
    commands = [f"keras-vit predict IMAGE --model {place}"]
    commands += [f"keras-vit evaluate {place} --data {shlex.quote(dataset)} --split {split}"] if split else []
    return [*commands, f"keras-vit export {place} --out {shlex.quote(f'{folder}-export')}"]


def print_outcome(folder, dataset, split, console: Console, has_head: bool = True) -> None:
    """Every file of the run, and the next commands."""
    console.print(f"Everything is in {folder}:", soft_wrap=True)
    console.print(tabulate_files(folder))
    console.print("Next:")
    for command in list_next_commands(folder, dataset, split, has_head):
        console.print_command(command)
