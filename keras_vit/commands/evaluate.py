"""`keras-vit evaluate`: the scores of a model on a dataset, class by class."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from keras_vit import data, evaluation
from keras_vit.commands.shared import (
    AnyModel,
    BatchSize,
    Data,
    Json,
    Like,
    ToFolder,
    import_keras,
    require_model,
    show_count,
)
from keras_vit.console import Console, make_table, say
from keras_vit.data.datasets.schemes import find_scheme, require_dataset
from keras_vit.errors import ConfigError
from keras_vit.evaluation.paper import describe_published, find_published, name_variant
from keras_vit.files import write_whole
from keras_vit.trainers.plan import require_outside_dataset
from keras_vit.training.runs.run_folder import describe_weights, read_config

MOST = 20  # classes to print; if there are more, half as many, the least recognized
DRAWN = 12  # most confident mistakes


def sort_known(classes, score):
    """The classes whose score of this name is known, the lowest first."""
    return sorted((x for x in classes if getattr(x, score) is not None), key=lambda x: getattr(x, score))


def print_scores(title, classes, **headings):
    """Prints a line for each class: its name, a count, and shares; `headings` are those of the named fields."""
    table = make_table(title, "class", *headings.values())
    for score in classes:
        count, *shares = (getattr(score, field) for field in headings)
        table.add_row(score.name, f"{count:,}", *("" if share is None else f"{share:.1%}" for share in shares))
    Console().print(table)


def print_evaluation(found):
    say(f"top-1 accuracy     {found.top1}")
    if found.top5:
        say(f"top-5 accuracy     {found.top5}")
    say(f"calibration error  {found.calibration_error:.3f}")
    if found.images_per_second:
        say(f"images per second  {found.images_per_second:,.0f}")
    if known := sort_known(found.classes, "recall"):
        few = len(known) <= MOST
        title = "Classes, the least recognized first" if few else "Least recognized classes"
        shown = known if few else known[: MOST // 2]
        print_scores(title, shown, count="images", recall="recall", precision="precision", f1="F1")


def print_precisions(found):
    """Prints the mean average precision of images with several classes, and the classes with the lowest."""
    say(f"mean average precision  {found.mean_average_precision:.1%} of {found.count:,} images")
    worst = sort_known(found.classes, "average_precision")[: MOST // 2]
    print_scores("Least recognized classes", worst, count="images", average_precision="average precision")


def print_masks(found):
    """Prints the mean intersection over union, and that of each class, the worst first."""
    say(f"mean IoU        {found.mean_iou:.1%} of {found.images:,} images")
    say(f"pixel accuracy  {found.pixel_accuracy:.1%}")
    print_scores("Classes, the worst first", sort_known(found.classes, "iou")[:MOST], pixels="pixels", iou="IoU")


def find_test_split(dataset: str) -> str | None:
    """The split to test on: test; validation if a folder or CSV file has only that; None for one without splits."""
    stated = require_dataset(dataset)
    if "test" in stated:
        return "test"
    return "validation" if "validation" in stated or find_scheme(dataset)[0].name == "csv" else None


def open_splits(dataset: str, split: str | None) -> "tuple[data.Examples, data.Examples, str]":
    """The images to train a probe on, those to test it on, and the split of the latter, by default `find_test_split`'s.

    The split is printed on standard error unless it is test.
    """
    split = split or find_test_split(dataset) or "validation"
    if split not in ("test", "validation"):
        raise ConfigError(f"Probes learn from the split train. Test them on test or validation. Received: {split}.")
    if split != "test":
        print(f"Tested on the split {split} of {dataset}.", file=sys.stderr)
    return data.load(dataset), data.load(dataset, split), split


def choose_split(dataset: str, model: str) -> tuple[str, str | None]:
    """The split to evaluate on if none was named, and a sentence about the choice or None.

    A folder of photos without a subfolder test is a test set itself, unless the run was trained on it.
    """
    split = find_test_split(dataset)
    if split == "test":
        return split, None
    trained = find_trained_split(model, find_scheme(dataset)[1])
    if split == "validation":
        said = "Those held out for validation are evaluated."
        if trained == "train+validation":
            said = "Those of validation are evaluated. The run was trained on them too, so it knows them."
        return split, f"{dataset} has no images of the split test. {said}"
    if trained == "train":
        return "validation", f"The run was trained on {dataset}: the images that it held out are evaluated."
    advice = "If the model was trained on them, choose --split validation."
    if trained:
        advice = "The run was trained on them, so it knows them."
    return "train+validation", f"{dataset} has no splits: all of its images are evaluated. {advice}"


def find_trained_split(model, path):
    """The split of that folder that a run was trained on, if the model is one, or a file of one; None for others."""
    place = Path(model)
    settings = read_config(place if place.is_dir() else place.parent).get("settings", {})
    scheme, _, folder = settings.get("dataset", "").partition(":")
    try:
        same = os.path.samefile(os.path.expanduser(folder), os.path.expanduser(path))
    except (OSError, ValueError):
        return None
    return settings.get("split", "train") if same and scheme in ("folder", "masks", "csv") else None


def write_evaluation(facts, found, predictions, names, examples, out):
    """Writes evaluation.json; for one class per image also mistakes.png and, for files, mistakes.csv; for masks
    `found`, a picture of the worst."""
    out.mkdir(parents=True, exist_ok=True)
    with write_whole(out / "evaluation.json") as path:
        path.write_text(json.dumps(facts, indent=1) + "\n", "utf-8")
    if examples.masked:
        with write_whole(out / "masks.png") as path:
            evaluation.draw_masks(found, path)
    if predictions is not None and predictions.labels is not None:
        with write_whole(out / "mistakes.png") as path:
            evaluation.draw_mistakes(predictions, names, path)
        if (paths := examples.paths()) is not None:
            with write_whole(out / "mistakes.csv") as path:
                evaluation.write_mistakes(predictions, names, paths, path)


def evaluate_model(
    model: AnyModel,
    dataset: Data,
    split: Annotated[
        str | None,
        typer.Option(
            help="The images to evaluate on: train, validation or test; by default test. If a folder has no subfolder "
            "test, all its images are used, or only the held-out ones if the run was trained on it; if a CSV file has "
            "no test images, its held-out images are used."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        ToFolder(
            help="A folder for evaluation.json, mistakes.png and mistakes.csv, or masks.png; old ones are replaced."
        ),
    ] = None,
    batch_size: BatchSize = 64,
    like: Like = None,
    as_json: Json = False,
) -> None:
    """Evaluates a model: top-1 and top-5 accuracy with a 95 % interval (Wilson's), calibration, and every class.

    The model may also be an exported file, for example to measure its int8 accuracy on your own images. Classes are
    matched by name. If an image has several classes, as in ImageNet ReaL and ObjectNet, predicting any of them is
    correct. For a CSV file with several labels per image, the mean average precision is printed, for masks the mean
    intersection over union. If the paper reports this model on this test set, its accuracy is printed too.

    Example: keras-vit evaluate runs/1 --data folder:test --out report
    """
    path = require_model(model)
    require_dataset(dataset)
    if out is not None:
        require_outside_dataset(out, dataset)
    import_keras()
    from keras_vit import inference
    from keras_vit.evaluation.evaluating import predict_examples, score_predictions

    said = None
    if split is None:
        split, said = choose_split(dataset, model)
    loaded, examples = inference.open_classifier(model, like), data.load(dataset, split)
    if said:
        print(said, file=sys.stderr)
    found: Any
    names, predictions = examples.class_names, None
    with data.data_errors(), show_count("images", examples.num_examples) as tell:
        if examples.multi_label:
            found = evaluation.evaluate_multi_label(loaded, examples, batch_size, tell)
        elif examples.masked:
            found = evaluation.mean_iou(loaded, examples, batch_size, DRAWN if out else 0, tell)
        else:
            names, predictions = predict_examples(loaded, examples, batch_size, DRAWN if out else 0, tell)
            found = score_predictions(predictions, names)
    printed = find_published(name_variant(loaded.config), dataset) if split == "test" else []
    facts = {**found.as_dict(), "published": printed}
    if as_json:
        print(json.dumps(facts))
    elif examples.multi_label:
        print_precisions(found)
    elif examples.masked:
        print_masks(found)
    else:
        if of_run := describe_weights(path):
            say(of_run)
        print_evaluation(found)
        for line in describe_published(printed):
            say(f"the paper's top-1  {line}")
    if out is not None:
        with data.data_errors():
            write_evaluation(facts, found, predictions, names, examples, out)
