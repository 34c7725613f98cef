"""What quantizing costs trained models: accuracy, agreement and cosines on whole test sets, written to a CSV file.

    python -m examples.paper_in_miniature.quantization runs/vit runs/resnet --data fashion_mnist:fashion-mnist
    python -m examples.paper_in_miniature.quantization --tag fashion-mnist --data fashion_mnist:fashion-mnist

Every model is exported in each kind to ONNX and TFLite, calibrated on 64 training images, and the files are run on the
test images in their own runtimes, as a classifier and, for the cosine of its features, without its head.
"""

import argparse
import csv
import itertools
import tempfile
from pathlib import Path

import keras
import numpy as np

from keras_vit import data, export, zoo
from keras_vit.export.formats import QUANTIZE, format_of_path
from keras_vit.export.processes import run_in_batches
from keras_vit.export.proof.parity import cosine
from keras_vit.training.runs.run_folder import model_of

FILES = ("model.onnx", "model.tflite")
COLUMNS = ("model", "format", "kind", "images", "accuracy", "points lost", "agreement", "cosine of logits")
COLUMNS += ("cosine of features", "times smaller", "finer layers")


def read_images(dataset, preprocessing, count):
    """Training images to calibrate on, and (images, labels) of the first `count` test examples, or of all."""
    training = data.load(dataset, "train").train(64, preprocessing, augmentation="none")
    batches = data.load(dataset, "test").evaluation(64, preprocessing)
    images, labels, weights = (np.concatenate(column) for column in zip(*batches.as_numpy_iterator(), strict=True))
    kept = np.flatnonzero(weights > 0)[:count]
    return np.asarray(next(iter(training))[0]), images[kept], labels[kept]


def without_head(model):
    """The model up to its features (n, d)."""
    features = keras.Model(model.input, model.get_layer("head").input, name=model.name)
    features.preprocessing = model.preprocessing
    return features


def export_and_run(model, name, kind, calibration, images):
    """(the report, the outputs for all images) of an export in its own runtime."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        report = export.convert(model, path, quantize=kind, images=calibration)
        run = format_of_path(path).load_reader().load(path)
        return report, run_in_batches(run, [images], (64,))[0]


def measure(model, file, kind, calibration, images, labels, expected):
    """A row of the table, without the model's name; `expected` are the model's logits and features."""
    report, logits = export_and_run(model, file, kind, calibration, images)
    _, features = export_and_run(without_head(model), file, kind, calibration, images)
    right = [(x.argmax(-1) == labels).mean() for x in (expected[0], logits)]
    agreement = (logits.argmax(-1) == expected[0].argmax(-1)).mean()
    numbers = (f"{right[1]:.4f}", f"{100 * (right[0] - right[1]):.2f}", f"{agreement:.4f}")
    cosines = (f"{cosine(a, b):.4f}" for a, b in zip(expected, (logits, features), strict=True))
    smaller = f"{report.model_weight_bytes / report.weight_bytes:.2f}"
    finer = "; ".join(f"{layer}: {way}" for layer, way in report.finer.items())
    return (report.format, kind, len(images), *numbers, *cosines, smaller, finer)


def main(models, tag, dataset, out, count, kinds):
    models = [*models, *(row.name for row in zoo.list() if tag and row.tag == tag)]
    with open(out, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for name in models:
            model = zoo.load(model_of(name))
            calibration, images, labels = read_images(dataset, model.preprocessing, count)
            networks = (model, without_head(model))
            expected = [network.predict(images, batch_size=64, verbose=0) for network in networks]
            for kind, artefact in itertools.product(kinds, FILES):
                if kind in format_of_path(Path(artefact)).quantize:
                    row = (name, *measure(model, artefact, kind, calibration, images, labels, expected))
                    writer.writerow(row)
                    file.flush()
                    print(*row, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="names or paths of checkpoints, or folders of runs")
    parser.add_argument("--tag", help="also the models of the zoo that have this tag")
    parser.add_argument("--data", dest="dataset", required=True, help="a dataset with a train and a test split")
    parser.add_argument("--out", default="quantization.csv")
    parser.add_argument("--count", type=int, help="test images, by default all")
    parser.add_argument("--kinds", nargs="+", default=list(QUANTIZE), choices=QUANTIZE)
    main(**vars(parser.parse_args()))
