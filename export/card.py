"""The model card of a bundle, in Markdown."""

import re

from keras_vit.text import printable


def write_card(about: dict) -> str:
    """The text of README.md for the contents of model.json."""
    parts = [
        f"# {escape_markdown(about['name'])}",
        list_model_facts(about),
        "## Artefacts",
        artefact_table(about["artefacts"]),
        describe_use(about),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def escape_markdown(text):
    """Text from elsewhere, with the markup of Markdown and HTML escaped."""
    return re.sub(r"([\\`*\[\]<>|&])", r"\\\1", printable(text))


def list_model_facts(about):
    """What is known about the model, a line each."""
    preprocessing = about["preprocessing"]
    lines = [f"- Input: {' '.join(str(entry['shape']) + ' ' + entry['dtype'] for entry in about['inputs'])}"]
    if preprocessing:
        crop = "no crop" if preprocessing["crop"] is None else f"the middle {preprocessing['crop']}"
        crop += " of it squashed" if preprocessing["crop_mode"] == "squash" else ""
        lines.append(
            f"- Preprocessing: resized to {preprocessing['image_size']} ({preprocessing['interpolation']}, {crop}), "
            f"scaled to [0, 1], less {preprocessing['mean']}, divided by {preprocessing['std']}"
        )
    if about["labels"]:
        lines.append(f"- Classes: {len(about['labels'])}, named in model.json")
    lines += [f"- {name.capitalize()}: {escape_markdown(about[name])}" for name in ("source", "licence") if about[name]]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    return "\n".join([*lines, f"- Made with {versions}"])


def artefact_table(artefacts):
    """Every artefact with its comparison."""
    head = "| File | Kind | MB | Largest difference | Cosine | Top-1 agreement |\n|---|---|---|---|---|---|"
    return "\n".join([head, *(artefact_row(entry) for entry in artefacts)])


def artefact_row(entry):
    agreement = "" if entry["top1_agreement"] is None else f"{entry['top1_agreement']:.1%} of {entry['images']}"
    kind = entry["quantize"] or "float32"
    return (
        f"| {entry['file']} | {kind} | {entry['bytes'] / 1e6:.1f} | {entry['max_abs_diff']:.1e} "
        f"| {entry['cosine']:.6f} | {agreement} |"
    )


def describe_use(about):
    first = about["artefacts"][0]["file"]
    predict = f"    python predict.py image.jpg --model {first}\n" if about["preprocessing"] else ""
    return f"## Use\n\n{predict}    keras-vit verify .    # compares the files with the examples again"
