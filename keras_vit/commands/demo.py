"""`keras-vit demo`: from a name to three verified files, on the handwritten digits that scikit-learn ships."""

import json
import os
from pathlib import Path

import keras
import matplotlib
import numpy as np
from rich.table import Table

from keras_vit import export, inspection, zoo
from keras_vit.commands.progress import FitProgress
from keras_vit.console import Console
from keras_vit.errors import ExportError
from keras_vit.files import sha256
from keras_vit.training.runs.files import read_json

TARGET_ACCURACY = 0.96
LABELS = tuple("0123456789")
FILES = ("digits.keras", "digits.onnx", "digits.tflite", "digits", "digits.png")
WRITTEN = "demo.json"  # {name: SHA-256, None of a folder} of what a demo has written, which the next one may replace


def run(out, *, variant="ViT-Test/4", epochs=40, console=None):
    """Trains a small ViT on the digits and exports it three ways; gives the accuracy on held-out digits.

    Args:
        out: folder for digits.keras, digits.onnx, digits.tflite, the SavedModel digits/ and digits.png.
        variant: name of the model in the zoo.
        epochs: passes over the 1,437 training digits.
        console: a rich console; None prints to the terminal.

    Raises:
        ExportError: when nothing can be written in `out`, or one of these files is there that no demo has written.
        ParityError: when an artefact is not the model.

    >>> run("keras-vit-demo")  # about a minute on two cores
    0.98
    """
    console = console or Console()
    out = writable(out)
    keras.utils.set_random_seed(0)
    train, test = digits()
    model = zoo.load(variant, weights=None, labels=LABELS, image_size=16, dropout_rate=0.1)
    console.print(
        f"{variant}: {model.count_params():,} parameters, {len(train[0]):,} training digits, {len(test[0])} held out."
    )
    accuracy = fit(model, train, test, epochs)
    console.print(f"Held-out accuracy: {accuracy:.1%}")
    model.save(out / "digits.keras")
    record(out)
    images = np.asarray(model.preprocessing(test[0][:64]))
    reports = [export.convert(model, out / name, images=images) for name in ("digits", "digits.tflite", "digits.onnx")]
    console.print(parity_table(reports))
    picture(model, images[:8], test[1][:8], out / "digits.png")
    record(out)
    console.print(f"Pictures with predictions and attention: {out / 'digits.png'}")
    return accuracy


def writable(folder):
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExportError(f"Nothing can be written in {folder}: {error.strerror}. Choose another folder.") from error
    known = written(Path(folder))
    for name in FILES:
        path = Path(folder, name)
        if os.path.lexists(path) and known.get(name, "") != digest_of(path):
            raise ExportError(f"{path} is there, and no demo has written it so. Choose another folder.")
    return Path(folder)


def written(folder):
    try:
        known = read_json(folder / WRITTEN)
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def digest_of(path):
    """SHA-256 of a file; None for a folder, whose files `export` looks after."""
    return sha256(path) if path.is_file() else None


def record(out):
    there = {name: digest_of(out / name) for name in FILES if (out / name).exists()}
    (out / WRITTEN).write_text(json.dumps(there, indent=1), "utf-8")


def digits():
    """((images, labels) to train on, (images, labels) held out); images uint8 (n, 8, 8, 3). A random fifth of
    each class is held out."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    data = load_digits()
    images = np.repeat((data.images[..., None] * (255 / 16)).astype("uint8"), 3, axis=-1)
    split = train_test_split(images, data.target, test_size=0.2, random_state=0, stratify=data.target)
    return (split[0], split[2]), (split[1], split[3])


def fit(model, train, test, epochs, batch_size=32):
    """Trains with Adam and a cosine schedule; gives the accuracy on `test`."""
    import tensorflow as tf

    def example(image, label):
        return shifted(image, model.config.image_size), label

    images, test_images = (np.asarray(model.preprocessing(x)) for x in (train[0], test[0]))
    batches = tf.data.Dataset.from_tensor_slices((images, train[1])).shuffle(len(images), seed=0).map(example)
    batches = batches.batch(batch_size, drop_remainder=True).prefetch(2)
    steps = epochs * (len(images) // batch_size)
    rate = keras.optimizers.schedules.CosineDecay(0.0, steps, warmup_target=2e-3, warmup_steps=steps // 10)
    model.compile(
        keras.optimizers.AdamW(rate, weight_decay=0.05, global_clipnorm=1.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    held_out = (test_images, test[1])
    model.fit(batches, epochs=epochs, validation_data=held_out, shuffle=False, verbose=0, callbacks=[FitProgress()])
    return model.evaluate(*held_out, verbose=0, return_dict=True)["accuracy"]


def shifted(image, size, most=1):
    """The image (h, w, c) moved by up to `most` pixels in each direction, its edge pixels repeated."""
    import tensorflow as tf

    padded = tf.pad(image, ((most, most), (most, most), (0, 0)), mode="SYMMETRIC")
    return tf.image.random_crop(padded, (*size, image.shape[-1]))


def parity_table(reports):
    title = "Exports, each compared with the model in its own runtime"
    table = Table("format", "file", "size", "largest difference", "top-1 agreement", title=title)
    for report in reports:
        table.add_row(
            report.format,
            Path(report.path).name,
            f"{report.bytes / 1e6:.2f} MB",
            f"{report.max_abs_diff:.1e}",
            f"{report.top1_agreement:.1%}",
        )
    return table


def picture(model, images, labels, path):
    """A PNG: each image, its prediction, and where the class token looked."""
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
