"""`keras-vit finetune`, `pretrain` and `vtab`: train, and print the outcome, or how to continue after a stop."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table

from keras_vit.commands.shared import (
    Model,
    Schedule,
    Stopping,
    ToFolder,
    import_keras,
    require_model,
    with_options_of,
)
from keras_vit.console import Console, list_pairs, make_table, say
from keras_vit.errors import ConfigError, Interrupted, Preempted, without_secrets
from keras_vit.evaluation import vtab as measures
from keras_vit.evaluation.paper import VTAB_TASKS, describe_accuracy, name_table
from keras_vit.trainers.choices import EVERY, MODELS, choose_checkpoint, choose_settings
from keras_vit.trainers.plan import prepare, resolve
from keras_vit.trainers.settings import MASKED_PATCHES, Settings
from keras_vit.training.runs.checkpoints import Checkpoints
from keras_vit.training.runs.run_folder import RunFolder

OPTIONS = ("steps", "batch_size", "image_size", "microbatches", "strategy", "precision", "seed")


def select_typed(context, fields):
    """The fields that were given on the command line."""
    return {name: fields[name] for name in fields if context.get_parameter_source(name).name == "COMMANDLINE"}


def print_how_to_continue(settings, out, every, said):
    """After an interruption, prints what is saved, unless that was `said`, and the command that continues the run."""
    saved = max(Checkpoints(out / "checkpoints").steps(), default=0)
    if not saved:
        kept = f"The search so far is kept in {out / 'search'}: the same command continues it."
        print(f"Stopped. {kept if (out / 'search').is_dir() else 'Nothing was saved.'}", flush=True)
        return
    command = ["keras-vit", "pretrain" if settings.pretrain else "finetune", "--out", str(out), "--resume"]
    command += ["--every", str(every)] if every != EVERY else []
    if not said:
        print(f"Stopped. The run in {out} is saved at step {saved:,}.")
    say(f"Go on with: {shlex.join(command)}")


def list_next_commands(folder, dataset, split, has_head=True):
    """The commands to type after a training; `split` names the split that judged it, or is None."""
    place = shlex.quote(str(folder))
    if not has_head:
        return [f"keras-vit finetune --model {place} --data folder:PHOTOS --out {shlex.quote(f'{folder}-finetuned')}"]
    commands = [f"keras-vit predict IMAGE --model {place}"]
    commands += [f"keras-vit evaluate {place} --data {shlex.quote(dataset)} --split {split}"] if split else []
    return [*commands, f"keras-vit export {place} --out {shlex.quote(f'{folder}-export')}"]


def print_outcome(result, settings):
    """Prints every file of the run, and the next commands."""
    say(f"Everything is in {result.folder}:")
    Console().print(list_pairs(result.files.items()))
    say("Next:")
    has_head = settings.objective != "masked-patches"
    for command in list_next_commands(result.folder, settings.dataset, result.judged_by, has_head):
        say(f"  {command}")


def start_training(
    *,
    context: typer.Context,
    out: Annotated[Path, ToFolder(help="The folder of the run; it is made if it is missing.")],
    every: Annotated[int, Stopping(min=1, help="Steps between checkpoints.")] = EVERY,
    resume: Annotated[
        bool,
        Stopping(
            "--resume",
            help="Continue the run in the folder, bit for bit, with its own options; --epochs or --steps prolong it.",
        ),
    ] = False,
    **fields,
) -> None:
    """Trains by the fields of `Settings`; an interruption prints the command that continues it."""
    pretrain = fields.pop("pretrain")
    settings = choose_settings(out, select_typed(context, fields), pretrain, resume)
    folder = RunFolder(out)
    settings, brief = prepare(settings, folder, resume), context.obj == "brief"  # in a demo, which sums up by itself
    try:
        import_keras(find_devices=False)
        from keras_vit.commands.progress import FitProgress
        from keras_vit.trainers.train import train

        tell = None if brief else say
        result = train(settings, folder, resume=resume, every=every, tell=tell, progress=FitProgress)
        if not brief:
            print_outcome(result, settings)
    except (KeyboardInterrupt, Preempted) as stopped:
        print_how_to_continue(settings, out, every, said=isinstance(stopped, (Interrupted, Preempted)))
        raise


def print_protocol(console, settings, summary):
    """Prints a table like Table 2: this result, and the paper's for this model and dataset."""
    table = Table(box=None, header_style="bold")
    for heading in ("accuracy, %", "runs", "model", "pre-training", "from"):
        table.add_column(heading, overflow="fold")
    deviation = None if summary["deviation"] is None else 100 * summary["deviation"]
    runs = len(summary["accuracies"])
    table.add_row(describe_accuracy(100 * summary["mean"], deviation), str(runs), settings.model, "", "these runs")
    for row in summary["published"]:
        value = describe_accuracy(row["value"], row.get("deviation"))
        three = "3" if row["table"] == "2" else ""
        table.add_row(value, three, row["model"], row["pre-training"] or "", name_table(row["table"]))
    console.print(table)


def start_protocol(*, context, out, every, resume, seeds, **fields) -> None:
    """Follows the paper's protocol; an interruption prints the command that continues it."""
    settings = resolve(choose_settings(out, select_typed(context, fields), pretrain=False, resume=False))
    import_keras(find_devices=False)
    from keras_vit.commands.progress import FitProgress
    from keras_vit.trainers.protocol import run_protocol

    try:
        found = run_protocol(settings, out, seeds=seeds, resume=resume, every=every, progress=FitProgress)
    except (Interrupted, Preempted):
        command = ["keras-vit", *sys.argv[1:], *([] if resume else ["--resume"])]
        say(f"Go on with: {shlex.join(map(without_secrets, command))}")
        raise
    print_protocol(Console(), settings, found)
    say(f"Everything is in {out}: results.json, seed-0, ...")


@with_options_of(start_training, without=MASKED_PATCHES, model=MODELS[False], dataset=None)
def finetune(
    *,
    protocol: Annotated[
        Literal["paper"] | None,
        Schedule(
            help="paper: search the learning rate on the development split, train on all of train and validation with "
            "several seeds, test each run once, and print mean and standard deviation beside the paper's numbers."
        ),
    ] = None,
    seeds: Annotated[int | None, Schedule(min=1, help="How many runs, with --protocol; 3 by default.")] = None,
    **arguments,
) -> None:
    """Fine-tunes a model on your images: with a new head, by the paper's recipe, and with all files in one folder.

    **Your images.** `--data folder:photos` takes a folder that has one folder of images per class. If it has the
    subfolders train/ and val/ (and test/) with class folders in each, these are the splits. Otherwise about a tenth of
    every class is held out, at least one image, chosen by a hash of each file's path. Adding images moves at most
    one other per class.

    **The folder** receives checkpoints, metrics.csv, curves.png, TensorBoard files (if it is installed) and the weights
    of the best epoch, best.weights.npz; at the end last.weights.npz, model.keras, mistakes.png (a confusion matrix,
    and the most confident mistakes) and mistakes.csv (all of them, by file). If the folder already has a file of such
    a name from elsewhere, the run is refused and the file stays.

    **Ctrl-C** saves the run; `keras-vit finetune --out runs/1 --resume` continues it. `--resume --epochs 20` prolongs a
    run, even a finished one: from then on it follows the learning rate of a run of 20 epochs.

    A bare name, such as ViT-B/16, starts from weights of ImageNet-21k. `--protocol paper` trains as the paper did for
    its final numbers: it searches the learning rate on the development set, trains on all images with three seeds, and
    tests each run once.

    Example: keras-vit finetune --data folder:photos --out runs/1 --model ViT-B/16
    """
    if protocol is not None:
        start_protocol(**arguments, seeds=seeds or 3)
    elif seeds is not None:
        raise ConfigError("--seeds sets how many runs --protocol paper has. Give both, or --seed for one run.")
    else:
        start_training(**arguments, pretrain=False)


@with_options_of(start_training, model=MODELS[True], dataset=None)
def pretrain(**arguments) -> None:
    """Trains a model from random weights, with the options of `finetune`.

    With --objective masked-patches it learns without labels: the model predicts the colours of corrupted patches
    (Appendix B.1.2 of the paper). The weights and model.keras of the run are then the encoder without a head;
    `finetune --model` starts from them. masked_patches.png shows predictions.

    Example: keras-vit pretrain --data digits --out runs/2 --model ViT-Test/4 --image-size 16 --learning-rate 0.002
    """
    start_training(**arguments, pretrain=True)


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
    out: Annotated[Path, ToFolder(help="The folder of the results; it is made if it is missing.")],
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
    say(f"Everything is in {out}: results.json, vtab.csv, vtab.png, ...")
