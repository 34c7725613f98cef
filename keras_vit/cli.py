"""The command `keras-vit`; keras_vit/commands/ has a file per verb. None imports Keras before it runs."""

import os
import sys
import warnings
from typing import Annotated

import typer

from keras_vit._version import __version__
from keras_vit.commands import (
    Command,
    benchmark,
    deduplicate,
    demo,
    evaluate,
    export,
    fewshot,
    finetune,
    info,
    inspect,
    list,
    predict,
    pretrain,
    preview,
    recipes,
    serve,
    verify,
    vtab,
)
from keras_vit.errors import KerasVitError, describe_install
from keras_vit.files import describe_refusal
from keras_vit.training.errors import Interrupted, Preempted

app = typer.Typer(
    name="keras-vit",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,  # a frame's variables may be secrets: a plain traceback shows none
    pretty_exceptions_show_locals=False,
    help="ViT, hybrid and ResNet (BiT) models of *An Image is Worth 16x16 Words* in Keras.\n\n"
    "Exit codes: 0 done, 1 the input could not be used (one sentence on standard error), 2 the command line was wrong.",
)
app.command("list", cls=Command)(list.list_models)
app.command("info", cls=Command)(info.show_info)
app.command("recipes", cls=Command)(recipes.list_recipes)
app.command("predict", cls=Command)(predict.predict)
app.command("finetune", cls=Command)(finetune.finetune)
app.command("pretrain", cls=Command)(pretrain.pretrain)
app.command("export", cls=export.ExportCommand)(export.export_model)
app.command("verify", cls=Command)(verify.verify_bundle)
app.command("serve", cls=Command)(serve.serve_page)
app.command("evaluate", cls=Command)(evaluate.evaluate_model)
app.command("fewshot", cls=Command)(fewshot.evaluate_few_shot)
app.command("preview", cls=Command)(preview.preview_images)
app.command("vtab", cls=Command)(vtab.train_vtab)
app.command("inspect", cls=Command)(inspect.inspect_model)
app.command("benchmark", cls=Command)(benchmark.benchmark)
app.command("deduplicate", cls=Command)(deduplicate.deduplicate)
app.command("demo", cls=Command)(demo.demonstrate)


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
    """Ends the process without the interpreter's own end.

    After an interrupted training that end may take forever: it stops TensorFlow's readers, which wait for Python.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main() -> None:
    """Runs the command; errors of the package become one sentence and exit code 1."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    warnings.filterwarnings("ignore", module=r"PIL\.")  # of a damaged image that is named, or read in spite of it
    warnings.formatwarning = lambda message, *place, **line: f"keras-vit: {message}\n"
    try:
        app()
    except KerasVitError as error:
        print(f"keras-vit: {error}", file=sys.stderr)
        sys.exit(1)
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":
            raise
        print(f"keras-vit: TensorFlow is not installed. Install one: {describe_install('cpu')}.", file=sys.stderr)
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
