"""Writes a bundle's model card, with the front matter that the Hugging Face Hub reads, and its predict.py."""

import ast
import importlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

from keras_vit.errors import printable
from keras_vit.export.formats import format_named
from keras_vit.export.proof.mixture import WAYS

SCRIPT = Path(__file__).with_name("predict_script.py")
PLACE = "LOADERS = {}\nPACKAGES = {}"  # in it
MOST_NAMES = 50  # classes that are named
METRICS = ("accuracy", "mean_average_precision", "mean_iou")  # by the Hub's names
# Licences known to the Hub, by their SPDX names in lower case; any other is "other".
LICENCES = ("apache-2.0", "mit", "bsd-2-clause", "bsd-3-clause", "cc0-1.0", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0")


def write_card(about: dict) -> str:
    """The text of README.md for the contents of model.json.

    It shows the entries of `description.describe_model`; the texts "architecture", "trained_on" and "weights_from";
    and "evaluated", a dictionary with "dataset", "split", "images", and "accuracy" or "mean_average_precision" (0 to
    1).
    """
    parts = [
        write_front_matter(about),
        f"# {escape_markdown(about['name'])}",
        list_model_facts(about),
        describe_classes(about["labels"], about["probabilities"]),
        "## Artefacts",
        artefact_table(about["artefacts"]),
        describe_further_outputs(about),
        list_finer_layers(about["artefacts"]),
        describe_use(about),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def write_front_matter(about):
    """YAML between two lines of dashes; values are in JSON, since that is also YAML."""
    licence = str(about["licence"] or "")
    task = "image-segmentation" if len(about["outputs"][0]["shape"]) == 4 else "image-classification"
    entries = {
        "library_name": "keras",
        "pipeline_tag": task if about["probabilities"] else "image-feature-extraction",
        "tags": ["keras-vit", *(entry["format"] for entry in about["artefacts"])],
    }
    if licence.casefold() in LICENCES:
        entries["license"] = licence.casefold()
    elif licence:
        entries |= {"license": "other", "license_name": printable(licence)}
    if evaluated := about.get("evaluated"):
        entries["model-index"] = [{"name": printable(about["name"]), "results": [as_result(evaluated, task)]}]
    lines = [f"{name}: {json.dumps(value)}" for name, value in entries.items()]
    return "\n".join(["---", *lines, "---"])


def as_result(evaluated, task):
    """A measured accuracy as an entry of the Hub's model-index."""
    dataset = printable(evaluated["dataset"])
    return {
        "task": {"type": task},
        "dataset": {"type": dataset, "name": dataset, "split": printable(evaluated["split"])},
        "metrics": [{"type": name, "value": evaluated[name]} for name in METRICS if name in evaluated],
    }


def escape_markdown(text):
    """Escapes the markup of Markdown and HTML in text from elsewhere."""
    return re.sub(r"([\\`*\[\]<>|&])", r"\\\1", printable(text))


def as_code(text):
    """Text from elsewhere as a code span, so that none of it becomes markup or a link."""
    return f"`{printable(text).replace('`', ' ').strip() or ' '}`"


def list_model_facts(about):
    """The known facts about the model, one line each."""
    preprocessing = about["preprocessing"]
    lines = [f"- Architecture: {escape_markdown(about['architecture'])}"] if about.get("architecture") else []
    lines.append(f"- Input: {' '.join(str(entry['shape']) + ' ' + entry['dtype'] for entry in about['inputs'])}")
    if preprocessing:
        crop = "no crop" if preprocessing["crop"] is None else f"the middle {preprocessing['crop']}"
        crop += " of it squashed" if preprocessing["crop"] and preprocessing["crop_mode"] == "squash" else ""
        lines.append(
            f"- Preprocessing: resized to {preprocessing['image_size']} ({preprocessing['interpolation']}, {crop}), "
            f"scaled to [0, 1], less {preprocessing['mean']}, divided by {preprocessing['std']}"
        )
    if evaluated := about.get("evaluated"):
        lines.append(describe_accuracy(evaluated))
    headings = {
        "trained_on": "Trained on",
        "weights_from": "Began with the weights of",
        "source": "Source",
        "licence": "Licence",
        "date": "Exported",
    }
    lines += [f"- {heading}: {escape_markdown(about[name])}" for name, heading in headings.items() if about.get(name)]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    return "\n".join([*lines, f"- Made with {versions}"])


def describe_accuracy(evaluated):
    """A line on the model's accuracy before the export, on images outside of its training set."""
    images, accuracy = evaluated["images"], evaluated.get("accuracy")
    if accuracy is None:
        other = next(name for name in METRICS if name in evaluated)
        found = f"{other.replace('_', ' ').capitalize()}: {evaluated[other]:.1%} on {images:,} images"
    else:
        correct = round(accuracy * images)  # the accuracy may be rounded
        found = f"Accuracy: {correct / images:.1%}, {correct:,} of {images:,} images"
    return f"- {found} ({escape_markdown(evaluated['split'])} of {escape_markdown(evaluated['dataset'])})"


def describe_classes(labels, probabilities):
    """The names of the classes, or the first of many, and whether an image may have several."""
    if not labels:
        return None
    names = ", ".join(map(as_code, labels[:MOST_NAMES]))
    more = f" and {len(labels) - MOST_NAMES:,} more, in model.json" if len(labels) > MOST_NAMES else ""
    several = " An image may have any number of them: each has its own probability, the sigmoid of its logit."
    return f"## Classes\n\n{len(labels):,}: {names}{more}.{several if probabilities == 'sigmoid' else ''}"


def artefact_table(artefacts):
    """A table of all artefacts with their comparison."""
    lines = ["| File | Kind | MB | Largest difference | Cosine | Top-1 agreement |", "|---|---|---|---|---|---|"]
    for entry in artefacts:
        agreement = "" if entry["top1_agreement"] is None else f"{entry['top1_agreement']:.1%} of {entry['images']}"
        lines.append(
            f"| {entry['file']} | {entry['quantize'] or 'float32'} | {entry['bytes'] / 1e6:.1f} "
            f"| {entry['max_abs_diff']:.1e} | {entry['cosine']:.6f} | {agreement} |"
        )
    return "\n".join(lines)


def describe_further_outputs(about):
    """A line for each output besides the logits, with the artefacts that have it."""
    lines = []
    for output in about["further_outputs"]:
        name = output["name"]
        having = [entry for entry in about["artefacts"] if name in entry["further_outputs"]]
        files = ", ".join(f"{x['file']} (largest difference {x['further_outputs'][name]:.1e})" for x in having)
        lines.append(f"- Output {as_code(name)}, {output['shape']} {output['dtype']}: {files}")
    return "\n".join(lines)


def list_finer_layers(artefacts):
    """Lists the layers that a quantized artefact stores more finely than its kind, by way."""
    lines = []
    for entry in artefacts:
        for way in dict.fromkeys(entry["finer"].values()):
            names = ", ".join(as_code(name) for name, other in entry["finer"].items() if other == way)
            lines.append(f"- {entry['file']} {WAYS[way]} in {names}")
    return "Layers in which int8 would cost too much:\n\n" + "\n".join(lines) if lines else None


def describe_use(about):
    """The commands to install packages, predict and verify."""
    lines = []
    if about["preprocessing"]:
        for entry in about["artefacts"]:
            lines.append(f"pip install numpy pillow {format_named(entry['format']).package}")
            lines.append(f"python predict.py image.jpg --model {entry['file']}")
            lines.append("")
    lines.append("keras-vit verify .    # compares the files with the examples again")
    return "## Use\n\n" + "\n".join(f"    {line}".rstrip() for line in lines)


def write_out(path, *names):
    """The source code of these names in a module, and of everything that they need from the same module."""
    text, defined = Path(path).read_text("utf-8"), dict[str, ast.stmt]()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            defined[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            defined[node.targets[0].id] = node
    needed, waiting = set(), list(names)
    while waiting:
        name = waiting.pop()
        if name in defined and name not in needed:
            needed.add(name)
            waiting += [x.id for x in ast.walk(defined[name]) if isinstance(x, ast.Name)]
    return [ast.get_source_segment(text, defined[name]) or "" for name in defined if name in needed]


def predict_source(formats: Sequence[str]) -> str:
    """The text of predict.py for artefacts of these formats, by name; it imports nothing from this package."""
    script = text = SCRIPT.read_text("utf-8")
    for node in ast.parse(script).body:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("keras_vit"):
            parts = write_out(importlib.import_module(str(node.module)).__file__, *(x.name for x in node.names))
            text = text.replace(ast.get_source_segment(script, node) or "", "\n\n\n".join(parts) + "\n\n")
    rows = [format_named(name) for name in formats]
    parts = [part for row in rows for part in write_out(row.load_reader().__file__, f"load_{row.name}")]
    loaders = ", ".join(f'"{row.name}": load_{row.name}' for row in rows)
    packages = ", ".join(f'"{row.name}": "{row.package}"' for row in rows)
    parts.append(f"LOADERS = {{{loaders}}}\nPACKAGES = {{{packages}}}")
    return text.replace(PLACE, "\n\n\n".join(parts), 1)
