"""`keras-vit finetune`, and the part of it that `pretrain` shares: the folder of the run, and how to continue it."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from keras_vit.commands import import_keras, try_folder
from keras_vit.console import Console
from keras_vit.errors import ConfigError
from keras_vit.text import without_secrets
from keras_vit.trainers.checks import require_inputs, require_possible
from keras_vit.trainers.resume import recall_settings
from keras_vit.trainers.settings import MASKED_PATCHES, Schedule, Settings, Stopping, with_options_of
from keras_vit.training.errors import Interrupted, Preempted
from keras_vit.training.runs.checkpoints import Checkpoints

EVERY = 200


def names_typed(context):
    """The names of the options that stand in the command line."""
    return {name for name in context.params if context.get_parameter_source(name).name == "COMMANDLINE"}


def say_how_to_go_on(settings, out, every, said):
    """After an interruption: what is saved, unless that was `said`, and the command that continues it."""
    saved = max(Checkpoints(out / "checkpoints").steps(), default=0)
    if not saved:
        print("Stopped. Nothing was saved.", flush=True)
        return
    command = ["keras-vit", "pretrain" if settings.pretrain else "finetune", "--out", str(out), "--resume"]
    command += ["--every", str(every)] if every != EVERY else []
    if not said:
        print(f"Stopped. The run in {out} is saved at step {saved:,}.")
    Console().print_command(shlex.join(command), "Go on with: ")


def make_settings(fields, otherwise=None):
    """The `Settings` of the options, or what is wrong where there is no --data."""
    if fields["dataset"] is None:
        what = otherwise or "Nothing says what to train on"
        raise ConfigError(f"{what}. Give --data, such as --data folder:photos.")
    return Settings(**fields)


def start_training(
    *,
    context: typer.Context,
    out: Annotated[Path, typer.Option(callback=try_folder, help="The folder of the run, which is made.")],
    every: Annotated[int, Stopping(min=1, help="Steps between checkpoints.")] = EVERY,
    resume: Annotated[
        bool,
        Stopping(
            "--resume",
            help="Continue the run in the folder, bit for bit. It knows its options; --epochs or --steps prolong it.",
        ),
    ] = False,
    **fields,
) -> None:
    """Trains by the fields of `Settings`; a run that is interrupted says by which command it continues."""
    if resume and (out / "config.json").is_file():
        typed = names_typed(context)
        settings = recall_settings(out, {name: fields[name] for name in fields if name in (*typed, "pretrain")})
    else:
        settings = make_settings(fields, f"There is no run in {out} to go on with" if resume else None)
    require_possible(settings, out, resume)
    try:
        import_keras(find_devices=False)
        from keras_vit.trainers.train import train

        train(settings, out, resume=resume, every=every)
    except (KeyboardInterrupt, Preempted) as stopped:
        say_how_to_go_on(settings, out, every, said=isinstance(stopped, (Interrupted, Preempted)))
        raise


def start_protocol(*, context, out, every, resume, seeds, **fields) -> None:
    """Follows the paper's protocol; one that is interrupted says by which command it continues."""
    settings = make_settings({**fields, "pretrain": False})
    require_inputs(settings)
    import_keras(find_devices=False)
    from keras_vit.trainers.protocol import run_protocol

    try:
        run_protocol(settings, out, seeds=seeds, resume=resume, every=every)
    except (Interrupted, Preempted):
        command = ["keras-vit", *sys.argv[1:], *([] if resume else ["--resume"])]
        Console().print_command(shlex.join(map(without_secrets, command)), "Go on with: ")
        raise


@with_options_of(start_training, without=MASKED_PATCHES, model="ViT-B/16", dataset=None)
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
    """Fine-tunes a model on your images: a new head, the paper's recipe, and a folder with everything of the run.

    **Your images.** `--data folder:photos` takes a folder that has one folder of images per class. With the subfolders
    train/ and val/ (and test/) in it, each of which has the class folders, these are the splits. Otherwise 8 to 12 %
    of every class are held out, at least one image of a class of five, chosen by a hash of each file's name: images
    that you add leave the others where they are.

    **The folder** receives checkpoints, metrics.csv, curves.png, TensorBoard files (if it is installed) and the weights
    of the best epoch, best.weights.npz; at the end last.weights.npz, model.keras, mistakes.png (a confusion matrix,
    and the surest mistakes) and mistakes.csv (all of them, by file). A file of such a name that is already there is
    never overwritten: the run is refused.

    **Ctrl-C** saves the run; `keras-vit finetune --out runs/1 --resume` continues it. `--resume --epochs 20` prolongs a
    run, also one that has finished: from there on the learning rate is that of a run of 20 epochs.

    A bare name, such as ViT-B/16, starts from weights of ImageNet-21k. The paper's final numbers are those of
    `--protocol paper`: it searches the learning rate on the development set, trains on all images with three seeds, and
    tests each run once.

    Example: keras-vit finetune --data folder:photos --out runs/1 --model ViT-B/16
    """
    if protocol is not None:
        start_protocol(**arguments, seeds=seeds or 3)
    elif seeds is not None:
        raise ConfigError("--seeds is how many runs --protocol paper has. Give both, or --seed for one run.")
    else:
        start_training(**arguments, pretrain=False)
