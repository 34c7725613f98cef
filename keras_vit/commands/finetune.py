"""`keras-vit finetune`, and the part of it that `pretrain` shares: the folder of the run, and how to continue it."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from keras_vit.commands import import_keras
from keras_vit.commands.training.settings import MASKED_PATCHES, Settings, with_options_of
from keras_vit.errors import ConfigError
from keras_vit.text import without_secrets
from keras_vit.training.errors import Interrupted, Preempted


def start_training(
    *,
    out: Annotated[Path, typer.Option(help="The folder of the run, which is made.")],
    every: Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")] = 200,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in the folder, bit for bit.")] = False,
    **fields,
) -> None:
    """Trains by the fields of `Settings`; a run that is interrupted says by which command it continues."""
    settings = Settings(**fields)
    import_keras(find_devices=False)
    from keras_vit.commands.training.train import train

    try:
        train(settings, out, resume=resume, every=every)
    except (Interrupted, Preempted):
        command = ["keras-vit", *sys.argv[1:], *([] if resume else ["--resume"])]
        print(f"Go on with: {shlex.join(map(without_secrets, command))}", flush=True)
        raise


def start_protocol(*, out, every, resume, seeds, **fields) -> None:
    """Follows the paper's protocol; one that is interrupted says by which command it continues."""
    settings = Settings(**fields, pretrain=False)
    import_keras(find_devices=False)
    from keras_vit.commands.training.protocol import run_protocol

    try:
        run_protocol(settings, out, seeds=seeds, resume=resume, every=every)
    except (Interrupted, Preempted):
        command = ["keras-vit", *sys.argv[1:], *([] if resume else ["--resume"])]
        print(f"Go on with: {shlex.join(map(without_secrets, command))}", flush=True)
        raise


@with_options_of(start_training, without=MASKED_PATCHES, model="ViT-B/16")
def finetune(
    *,
    protocol: Annotated[
        Literal["paper"] | None,
        typer.Option(
            help="paper: search the learning rate on the development split, train on all of train and validation with "
            "several seeds, test each run once, and print mean and standard deviation beside the paper's numbers."
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many runs, with --protocol; 3 by default.")] = None,
    **arguments,
) -> None:
    """Fine-tunes a model on your images: a new head, the paper's recipe, and a folder with everything of the run.

    The folder receives checkpoints, the best weights, metrics.csv, curves.png, TensorBoard files (if it is installed),
    and at the end model.keras, model.npz and mistakes.png (a confusion matrix, and the surest mistakes). A file of
    such a name that is already there is never overwritten: the run is refused. Ctrl-C saves the run, and --resume
    continues it.

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
