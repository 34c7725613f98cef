"""`keras-vit demo`: fine-tunes shipped weights, exports them for every runtime, and shows where they look."""

import contextlib
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from PIL import Image

from keras_vit import data, evaluation, inference
from keras_vit.commands.pictures import PAGE
from keras_vit.commands.shared import ToFolder, import_keras
from keras_vit.console import Console, list_pairs, make_table, say
from keras_vit.data.datasets.arrays import read_digits
from keras_vit.errors import ExportError, KerasVitError
from keras_vit.files import make_folder
from keras_vit.owned import OwnFolder, files_in

VARIANT = "ViT-Mini/4"
MODEL = f"{VARIANT}:fashion-mnist"  # the weights that ship
DATA = "digits"
EXAMPLES, STEPS = 300, 120
# Both trainings have these options, and differ in the weights that they begin with.
TRAINING = (
    f"--recipe mini-vit --split train+validation --examples {EXAMPLES} --steps {STEPS} --batch-size 16 "
    "--learning-rate 0.002 --augmentation shift"
)
TARGET_ACCURACY = 0.85
FINETUNED, SCRATCH = "fine-tuned", "from random weights"
# In the demo's folder, and what each part is.
PARTS = {
    "finetuned": "the run from the shipped weights, with curves.png",
    "scratch": "the run from random weights",
    "dist": "three formats, a page for browsers, predict.py and a model card",
    "int8": "ONNX and TFLite in int8",
    "report": "index.html: what the model learned, and where it looks",
    "digits": "ten pictures to classify",
}


class DemoFolder(OwnFolder):
    """The files of a demo. The next demo replaces them all, and refuses to start if others' files are among them."""

    record, writer, error = "keras-vit-demo.json", "a demo", ExportError
    names = re.compile(f"({'|'.join(PARTS)})/.+", re.DOTALL)

    def list_parts(self):
        """The names of all files of PARTS, whoever wrote them."""
        names = []
        for part in PARTS:
            self.require_plain_folders(f"{part}/file")
            names += [f"{part}/{name}" for name in files_in(self.path / part)]
        return names


@contextlib.contextmanager
def replace_parts(out: Path) -> Iterator[None]:
    """Removes the files of an earlier demo in `out`, and records those of this one, however it ends."""
    folder = DemoFolder(out)
    folder.require_own(folder.list_parts())
    with make_folder(out):
        folder.remove(folder.digests())
        try:
            yield
        finally:
            with contextlib.suppress(OSError, ExportError):
                folder.enter(folder.list_parts())
                if not folder.digests():
                    (out / folder.record).unlink()


def list_commands(out):
    """{what happens: the commands that do it}, in order."""
    place = {name: shlex.quote(str(out / name)) for name in PARTS}
    return {
        f"1. {MODEL} learns digits, from {EXAMPLES} pictures.": [
            f"keras-vit finetune --data {DATA} --model {MODEL} {TRAINING} --out {place['finetuned']}"
        ],
        "2. A model of random weights learns from the same pictures.": [
            f"keras-vit pretrain --data {DATA} --model {VARIANT} {TRAINING} --out {place['scratch']}"
        ],
        "3. The fine-tuned model becomes files for every runtime.": [
            f"keras-vit export {place['finetuned']} --to onnx tflite saved_model --web --calibration {DATA} "
            f"--out {place['dist']}",
            f"keras-vit export {place['finetuned']} --to onnx tflite --quantize int8 --calibration {DATA} "
            f"--out {place['int8']}",
        ],
        "4. What has the model learned, and where does it look?": [
            f"keras-vit inspect {place['finetuned']} --data {DATA} --split test --out {place['report']}"
        ],
    }


def run_commands(out, run):
    """The seconds that each took."""
    console, seconds = Console(), []
    for sentence, commands in list_commands(out).items():
        console.print()
        console.print(sentence, style="bold", soft_wrap=True)
        for command in commands:
            say(f"$ {command}")
            begun = time.monotonic()
            run(shlex.split(command)[1:])
            seconds.append(time.monotonic() - begun)
    return seconds


def save_digits(out):
    """Saves the first test digit of each class as 0.png to 9.png."""
    images, labels = read_digits("test")
    out.mkdir(exist_ok=True)
    for name in np.unique(labels):
        Image.fromarray(images[np.argmax(labels == name), :, :, 0]).save(out / f"{name}.png")


def tabulate_shares(shares, seconds):
    """A line for each model: its accuracy, how sure that is, and its training."""
    title = f"Tested on {shares[FINETUNED].count} other digits"
    table = make_table(title, "model", "accuracy", "95% interval", "training")
    for name, share in shares.items():
        trained = f"{STEPS} updates, {seconds[name]:.0f} s" if name in seconds else ""
        table.add_row(name, f"{share.value:.1%}", "{:.1%} to {:.1%}".format(*share.interval), trained)
    return table


def list_next_commands(out):
    digits, int8 = shlex.quote(str(out / "digits")), shlex.quote(str(out / "int8"))
    return [
        f"keras-vit predict {digits} --model {int8}/model.onnx",
        f"keras-vit verify {int8}",
        f"keras-vit serve {shlex.quote(str(out / 'dist'))}",
        "keras-vit finetune --data folder:PHOTOS --model ViT-B/16 --out runs/1",
    ]


def print_summary(out, shares, seconds):
    """Accuracies, files, how to open the page, and what to type next."""
    pretrained, scratch = (shares[name] for name in (FINETUNED, SCRATCH))
    console = Console()
    console.print()
    console.print(tabulate_shares(shares, seconds))
    console.print(f"Pre-training gained {100 * (pretrained.value - scratch.value):.1f} points.")
    console.print()
    console.print(list_pairs(((str(out / name), meaning) for name, meaning in PARTS.items()), "The folder now has"))
    console.print()
    console.print("Open in a browser:")
    say(f"  {(out / 'report' / PAGE).absolute().as_uri()}")
    console.print("Next:")
    for command in list_next_commands(out):
        say(f"  {command}")


def run_demo(out, run):
    """Makes `PARTS`, and returns the fine-tuned accuracy; `run` takes the words of a command after `keras-vit`."""
    models = {FINETUNED: out / "finetuned", SCRATCH: out / "scratch"}
    models |= {f"{FINETUNED}, {form} int8": out / "int8" / f"model.{form}" for form in ("onnx", "tflite")}
    with replace_parts(out):
        import_keras()
        seconds = dict(zip(models, run_commands(out, run)[:2], strict=False))  # of the trainings
        save_digits(out / "digits")
        test = data.load(DATA, "test")
        opened = {name: inference.open_classifier(model) for name, model in models.items()}
        shares = {name: evaluation.evaluate(model, test).top1 for name, model in opened.items()}
    print_summary(out, shares, seconds)
    return shares[FINETUNED].value


def demonstrate(
    context: typer.Context,
    out: Annotated[Path, ToFolder(help="Folder for all that the demo makes.")] = Path("keras-vit-demo"),
) -> None:
    """Shows the main job in a minute or two, without a network: fine-tune, export, prove equal, look inside.

    Fine-tunes a small ViT on 300 handwritten digits of scikit-learn; its weights come with the package and were trained
    on clothes (Fashion-MNIST). Trains the same model from random weights to compare. Exports the fine-tuned
    model to SavedModel, TFLite and ONNX, and to the last two also in int8. Compares each file with the model, in its
    own runtime. Writes two pages: one shows where the model looks, the other runs it in a browser. Prints the command
    of every step. The exit code is 1 if the fine-tuned model classifies less than 85 % of 360 other digits correctly.

    Example: keras-vit demo --out keras-vit-demo
    """
    app = context.find_root().command

    def run(words):
        with app.make_context("keras-vit", words, obj="brief") as inner:
            app.invoke(inner)

    accuracy = run_demo(out, run)
    if accuracy < TARGET_ACCURACY:
        raise KerasVitError(f"The fine-tuned accuracy is {accuracy:.1%}; {TARGET_ACCURACY:.0%} was expected.")
