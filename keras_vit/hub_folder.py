"""Writes a model's folder for the Hugging Face Hub, for five loaders: `keras_vit.zoo.save(layout="hub")`.

    config.json, model.safetensors      transformers, keras-hub, this package
    preprocessor_config.json            transformers
    onnx/                               transformers.js
    timm/                               timm, and this package where transformers has no such model
    README.md                           the model's card, with the lines for each

If a loader cannot hold the model, its file is left out, and README.md says why.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

from keras_vit.errors import CheckpointError, ExportError
from keras_vit.export.card import describe_classes, escape_markdown, list_model_facts, write_front_matter
from keras_vit.export.preparation import prepare
from keras_vit.export.staging import HUB_FILES, stage
from keras_vit.export.web.transformers_js import describe_layout, make_preprocessor_config, write_layout
from keras_vit.models.classifier import Classifier
from keras_vit.zoo.formats.torch.timm_files import make_timm_config
from keras_vit.zoo.formats.torch.transformers_files import find_kind
from keras_vit.zoo.saving import save

# The lines that open a folder, {here}, or the repository to which it is pushed.
LINES = {
    "transformers": "transformers.{auto}.from_pretrained({here!r})",
    "timm": "timm.create_model('local-dir:{here}/timm', pretrained=True)",
    "transformers.js": "await pipeline({task!r}, {here!r})",
    "keras-hub": "keras_hub.models.ViTImageClassifier.from_preset({here!r})",
    "Keras ViT": "keras_vit.zoo.load({here!r})",
}
ADVICE = re.compile(r" (Save|Leave) [^.]*\.[^.]*\.?$")  # of an error, about layouts; a card needs the reason alone


def ask(make, *arguments):
    """(result of `make`, None), or (None, why that loader cannot hold the model)."""
    try:
        return make(*arguments), None
    except (CheckpointError, ExportError) as error:
        return None, ADVICE.sub("", str(error))


def require_keras_hub(model, kind):
    """Refuses models that keras-hub's ViT cannot compute."""
    if kind is None or kind.name != "ViTForImageClassification":
        raise CheckpointError("keras-hub reads only transformers' ViTForImageClassification.")
    if model.config.gelu_approximate:
        raise CheckpointError("keras-hub computes exact GELU, but these weights are for its approximation by tanh.")


def write_json(path, found):
    path.write_text(json.dumps(found, indent=2) + "\n", "utf-8")


def write_readme(about, why, kind):
    """Writes the card: the Hub's metadata, facts about the model, and a line for each loader or why there is none."""
    formats = {"transformers": "safetensors", "timm": "timm", "transformers.js": "onnx"}
    library = next((name for name in ("transformers", "timm") if why[name] is None), "keras")
    about = {**about, "artefacts": [{"format": tag} for name, tag in formats.items() if why[name] is None]}
    front = write_front_matter(about).replace('library_name: "keras"', f'library_name: "{library}"')
    auto = "AutoModelForImageClassification" if kind and kind.name.endswith("Classification") else "AutoModel"
    task = "image-classification" if about["probabilities"] else "image-feature-extraction"
    lines = ["| loader | line |", "|---|---|"]
    for name, line in LINES.items():
        shown = f"`{line.format(here='FOLDER', auto=auto, task=task)}`"
        lines.append(f"| {name} | {shown if why[name] is None else escape_markdown(why[name])} |")
    more = "From the Hub, put the repository's name for FOLDER; timm then takes `hf-hub:NAME`, keras-hub and Keras ViT "
    more += f"`hf://NAME{'' if kind else '/timm/model.safetensors'}`."
    parts = [front, f"# {escape_markdown(about['name'])}", list_model_facts(about)]
    parts += [describe_classes(about["labels"], about["probabilities"]), "## Open it", "\n".join(lines), more]
    return "\n\n".join(part for part in parts if part) + "\n"


def save_folder(model: Classifier, path: str | os.PathLike[str], metadata: dict[str, Any] | None) -> None:
    """Writes the folder `path`, whole or not at all; files of an earlier call there are replaced. See `zoo.save`."""
    source = prepare(model, metadata={"name": Path(path).name, **(metadata or {})})
    kind, not_transformers = ask(find_kind, model.config)
    timm, not_timm = ask(make_timm_config, model)
    _, not_js = ask(describe_layout, source)
    _, not_keras_hub = ask(require_keras_hub, model, kind)
    why = dict(zip(LINES, (not_transformers, not_timm, not_js, not_keras_hub, None), strict=True))
    processor, _ = ask(make_preprocessor_config, source, model.config.num_channels)
    with stage(path, HUB_FILES, is_folder=True) as folder:
        config = {}
        if not_js is None:
            write_layout(source, folder, lambda line: None)
            config = json.loads((folder / "config.json").read_text("utf-8"))
        if kind:
            save(model, folder / "model.safetensors", layout="transformers")
            config |= json.loads((folder / "config.json").read_text("utf-8"))
        if timm or not kind:
            (folder / "timm").mkdir()
            save(model, folder / "timm/model.safetensors")
        if timm:
            write_json(folder / "timm/config.json", timm)
            cfg = timm["pretrained_cfg"] | {"hf_hub_filename": "timm/model.safetensors"}
            config |= timm | {"pretrained_cfg": cfg}
        write_json(folder / "config.json", config)
        if processor:
            write_json(folder / "preprocessor_config.json", processor)
        about = source.describe(source.choose_shapes())
        (folder / "README.md").write_text(write_readme(about, why, kind), "utf-8")
