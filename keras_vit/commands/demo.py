"""`keras-vit demo`: from a name to three verified files, on the handwritten digits that scikit-learn ships."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from keras_vit import data, export, inspection, training, zoo
from keras_vit.commands import import_keras
from keras_vit.commands.export import tabulate_reports
from keras_vit.console import Console
from keras_vit.errors import ExportError, KerasVitError
from keras_vit.files import sha256
from keras_vit.training.runs.files import read_small_json

if TYPE_CHECKING:
    import keras

TARGET_ACCURACY = 0.96
# ImageNet's recipe (Table 3) for 1,437 images of 8 x 8 pixels: small batches, and less decay of the weights.
BATCH_SIZE = 32
SMALL = {"image_size": 16, "learning_rate": 0.002, "weight_decay": 0.05, "representation_size": None}
FILES = ("digits.keras", "digits.onnx", "digits.tflite", "digits", "digits.png")
WRITTEN = "demo.json"  # {name: SHA-256, None of a folder} of what a demo has written, which the next one may replace


def require_demo_folder(folder):
    """Makes the folder; refuses one that holds files of these names that no demo has written."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExportError(f"Nothing can be written in {folder}: {error.strerror}. Choose another folder.") from error
    known = read_written(Path(folder))
    for name in FILES:
        path = Path(folder, name)
        if os.path.lexists(path) and known.get(name, "") != digest_of(path):
            raise ExportError(f"{path} exists, and is not as a demo wrote it. Choose another folder.")


def read_written(folder):
    try:
        known = read_small_json(folder / WRITTEN)
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def digest_of(path):
    """SHA-256 of a file; None for a folder, whose files `export` looks after."""
    return sha256(path) if path.is_file() else None


def record_written(out):
    there = {name: digest_of(out / name) for name in FILES if (out / name).exists()}
    (out / WRITTEN).write_text(json.dumps(there, indent=1), "utf-8")


def shift(images, labels):
    """Moves each image of a batch (n, h, w, c) by up to a pixel in each direction, its edge pixels repeated."""
    import tensorflow as tf

    padded = tf.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="SYMMETRIC")
    return tf.map_fn(lambda image: tf.image.random_crop(image, images.shape[1:]), padded), labels


def train_on_digits(variant: str, digits: "data.Examples", held_out: "data.Examples", epochs: int) -> "keras.Model":
    """A model of that variant, trained from random weights by the recipe for ImageNet, made small."""
    from keras_vit.commands.training.progress import FitProgress

    steps = digits.steps_per_epoch(BATCH_SIZE)
    recipe = training.recipe("pretrain-imagenet", batch_size=BATCH_SIZE, steps=epochs * steps, **SMALL)
    model = zoo.load(variant, weights=None, labels=digits.class_names, **recipe.model_arguments)
    recipe.compile(model)
    model.fit(
        digits.train(BATCH_SIZE, model.preprocessing).map(shift),
        epochs=epochs,
        steps_per_epoch=steps,
        validation_data=held_out.evaluation(BATCH_SIZE, model.preprocessing),
        callbacks=[FitProgress(batch_size=BATCH_SIZE)],
        verbose=0,
    )
    return model


def draw_predictions(model, images, labels, path):
    """A PNG: each image, its prediction, and where the class token looked."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    predicted = np.asarray(model(images)).argmax(-1)
    attention = inspection.rollout(inspection.attention_weights(model, images), model.config.grid)
    figure, axes = pyplot.subplots(2, len(images), figsize=(1.6 * len(images), 3.8), layout="constrained")
    for i, (image, seen) in enumerate(zip(images, attention, strict=True)):
        right = predicted[i] == labels[i]
        axes[0, i].imshow(image / 2 + 0.5)
        axes[0, i].set_title(f"{model.labels[predicted[i]]}", color="green" if right else "red")
        axes[1, i].imshow(image.mean(-1), cmap="gray")
        axes[1, i].imshow(seen, cmap="inferno", alpha=0.6, extent=axes[1, i].get_images()[0].get_extent())
    for axis in axes.flat:
        axis.set_axis_off()
    figure.suptitle("Held-out digits and predictions (green is right); attention rollout from the class token")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def run_demo(out: Path, *, variant: str = "ViT-Test/4", epochs: int = 40, console: Console | None = None) -> float:
    """Trains a small ViT on the digits and exports it three ways; returns the accuracy on held-out digits.

    Args:
        out: folder for digits.keras, digits.onnx, digits.tflite, the SavedModel digits/ and digits.png.
        variant: name of the model in the zoo.
        epochs: passes over the 1,437 training digits.
        console: prints what happens; None prints to the terminal.

    Raises:
        ExportError: when nothing can be written in `out`, or one of these files is there that no demo has written.
        ParityError: when the outputs of an artefact differ from the model's.

    >>> run_demo("keras-vit-demo")  # about a minute on two cores  # doctest: +SKIP
    0.99
    """
    import keras

    console, out = console or Console(), Path(out)
    require_demo_folder(out)
    keras.utils.set_random_seed(0)
    digits, held_out = data.load("digits", "train+validation"), data.load("digits", "test")
    console.print(f"{variant}: {digits.num_examples:,} digits to train on, {held_out.num_examples} held out.")
    model = train_on_digits(variant, digits, held_out, epochs)
    accuracy = model.evaluate(held_out.evaluation(BATCH_SIZE, model.preprocessing), verbose=0, return_dict=True)[
        "accuracy"
    ]
    console.print(f"Held-out accuracy: {accuracy:.1%}")
    model.save(out / "digits.keras")
    record_written(out)
    images, labels, _ = (np.asarray(x) for x in next(iter(held_out.evaluation(64, model.preprocessing))))
    reports = [export.convert(model, out / name, images=images) for name in ("digits", "digits.tflite", "digits.onnx")]
    console.print(tabulate_reports(reports, "Exports, each compared with the model in its own runtime"))
    draw_predictions(model, images[:8], labels[:8], out / "digits.png")
    record_written(out)
    console.print(f"Predictions and attention are drawn in {out / 'digits.png'}")
    return accuracy


def demonstrate(
    out: Annotated[Path, typer.Option(help="Folder for the model, its exports and the figure.")] = Path(
        "keras-vit-demo"
    ),
) -> None:
    """Shows the main job in a minute or two, without a network: train, export three ways, prove equal.

    Trains a small ViT on the handwritten digits of scikit-learn, exports it to SavedModel, TFLite and ONNX, compares
    each with the model in its own runtime, and draws predictions and attention. Exit code 1 below 96 % accuracy.

    Example: keras-vit demo --out keras-vit-demo
    """
    import_keras()
    accuracy = run_demo(out)
    if accuracy < TARGET_ACCURACY:
        raise KerasVitError(f"The held-out accuracy is {accuracy:.1%}; {TARGET_ACCURACY:.0%} was expected.")
