"""The command `keras-vit`. A command's file is imported when the command is used, Keras when it runs."""

import functools
import importlib
import os
import sys
import warnings
from typing import Annotated, Any

import typer

import keras_vit
from keras_vit._version import __version__
from keras_vit.commands.parsing import Command
from keras_vit.errors import SHARED_FOLDER, DataError, Interrupted, KerasVitError, Preempted
from keras_vit.files import describe_refusal

COMMANDS = {  # in the order of help: the function of each in a file of keras_vit/commands/
    "list": "list.list_models",
    "info": "list.show_info",
    "recipes": "recipes.list_recipes",
    "predict": "predict.predict",
    "embed": "embed.embed_images",
    "near": "embed.show_nearest",
    "finetune": "finetune.finetune",
    "pretrain": "finetune.pretrain",
    "export": "export.export_model",
    "verify": "export.verify_bundle",
    "serve": "serve.serve_page",
    "evaluate": "evaluate.evaluate_model",
    "compare": "compare.compare",
    "doctor": "doctor.diagnose",
    "fewshot": "probe.evaluate_few_shot",
    "probe": "probe.probe_models",
    "preview": "pictures.preview_images",
    "vtab": "finetune.train_vtab",
    "inspect": "pictures.inspect_model",
    "benchmark": "benchmark.benchmark",
    "deduplicate": "pictures.deduplicate",
    "demo": "demo.demonstrate",
}


@functools.cache
def load_command(name):
    file, function = COMMANDS[name].split(".")
    module = importlib.import_module(f"keras_vit.commands.{file}")
    alone = typer.Typer(rich_markup_mode="markdown", add_completion=False)
    alone.command(name, cls=getattr(module, "COMMAND", Command))(getattr(module, function))
    return typer.main.get_command(alone)


class LazyGroup(typer.core.TyperGroup):
    """Imports the file of a command when the command is asked for."""

    def __init__(self, **options):
        super().__init__(**options)
        self.commands: Any = {**dict.fromkeys(COMMANDS), **self.commands}

    def get_command(self, context, name):
        return load_command(name) if name in COMMANDS else super().get_command(context, name)


app = typer.Typer(
    name="keras-vit",
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,  # a frame's variables may be secrets: a plain traceback shows none
    pretty_exceptions_show_locals=False,
    help="ViT, hybrid and ResNet (BiT) models of *An Image is Worth 16x16 Words* in Keras.\n\n"
    "Exit codes: 0 done, 1 the input could not be used (standard error says why), 2 the command line was wrong.",
)


def show_version(value: bool):
    if value:
        print(f"keras-vit {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version.")
    ] = False,
):
    pass


def end_process(status):
    """Ends the process without the interpreter's shutdown.

    After an interrupted training, or an error of TensorFlow's readers, that may take forever: it stops the readers, and
    these wait for Python.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main() -> None:
    """Runs the command; errors of the package become one sentence and exit code 1."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if not hasattr(keras_vit, "__getattr__"):  # its __init__ is another project's, or missing
        sys.exit(f"keras-vit: {SHARED_FOLDER}")
    warnings.filterwarnings("ignore", module=r"PIL\.")  # about damaged images; our own messages name these
    warnings.formatwarning = lambda message, *place, **line: f"keras-vit: {message}\n"
    try:
        app()
    except KerasVitError as error:
        print(f"keras-vit: {error}", file=sys.stderr)
        if isinstance(error, DataError) and type(error.__cause__).__module__.startswith("tensorflow."):
            end_process(1)
        sys.exit(1)
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        print(f"keras-vit: {describe_refusal(error)}", file=sys.stderr)
        sys.exit(1)
    except SystemExit as end:
        cause: BaseException | None = end  # typer makes an exit of Ctrl-C
        while cause and not isinstance(cause, Preempted | Interrupted):
            cause = cause.__context__
        if cause:
            end_process(end.code)
        raise
    except Interrupted:
        end_process(130)
    except KeyboardInterrupt:
        sys.exit(130)
