"""Makes a finished run into weights that come with the package: one command for each run.

    python tools/ship.py RUN fashion-mnist FOLDER     # the folder of Fashion-MNIST's four idx.gz files
    python tools/ship.py RUN emoji EMOJI/test         # the test vendor's drawings, by tools/emoji.py

writes, or replaces,

    zoo/weights/NAME.npz    the run's weights in float16, in the official layout
    zoo/weights/NAME.md     their model card
    zoo/registry.json       their row, and the default of a variant that had none
    docs/models.md          its tables

after it has evaluated them on the whole test set, before and after rounding, and on the sample in tests/samples/. A
model that loses more than MOST_LOST points by rounding, or is of MOST_BYTES or more, is refused. Commit what
`git status` shows then; `pytest tests/zoo/test_shipped.py` proves it.
"""

import argparse
import json
import shlex
import shutil
import tempfile
import textwrap
import zipfile
from pathlib import Path

import models_page as page
import numpy as np
from samples import TEST_SETS, load_sample

from keras_vit import evaluation, zoo
from keras_vit.cli import load_command
from keras_vit.export.card import describe_classes, list_model_facts, write_front_matter
from keras_vit.export.description import describe_model
from keras_vit.files import sha256
from keras_vit.models.variants import VARIANTS
from keras_vit.trainers.provenance import describe_beginning, describe_dataset, name_architecture
from keras_vit.training.runs.run_folder import FILES, model_of
from keras_vit.zoo.names import rows
from keras_vit.zoo.names.rows import class_names

ROOT = Path(__file__).parents[1]
MOST_LOST = 0.1  # points of accuracy, by rounding to float16
MOST_BYTES = 3_000_000
MACHINE = "2 CPU cores, shared with other work"
LICENCE = "Apache-2.0"
LOOK = {"indent": None, "ensure_ascii": False}  # of a row of registry.json


def read_facts(run):
    """A run's config.json."""
    return json.loads((run / "config.json").read_text("utf-8"))


def list_stages(run):
    """The runs that led to one, itself the last: a run that fine-tunes another's weights comes after it."""
    model = Path(read_facts(run)["settings"]["model"])
    before = model.parent if model.name in FILES else model
    return [*(list_stages(before) if (before / "config.json").is_file() else ()), run]


def find_beginning(run):
    """The record of the weights that a training began with, if these ship; {} if it began with others."""
    settings = read_facts(list_stages(run)[0])["settings"]
    records = {row.name: row.record for row in rows.checkpoints() if row.record}
    return {} if settings["pretrain"] else records.get(settings["model"], {})


def restore_commands(run):
    """The commands of a run's stages, a line each; first those of the weights that it began with, if these ship."""
    lines = find_beginning(run).get("command", "").splitlines()
    stages = [dict(read_facts(stage)["settings"]) for stage in list_stages(run)]
    names = [*(f"RUN{i}" for i in range(1, len(lines) + len(stages))), "RUN"]
    if lines:
        stages[0]["model"] = names[len(lines) - 1]
        lines[-1] = lines[-1].removesuffix("RUN") + stages[0]["model"]
    outs = names[len(lines) :]
    for settings, before in zip(stages[1:], outs, strict=False):
        settings["model"] = before
    return "\n".join(lines + [restore_command(*pair) for pair in zip(stages, outs, strict=True)])


def restore_command(settings, out):
    """The command that a run was begun with, from the settings in its config.json; datasets without their folders."""
    name = "pretrain" if settings["pretrain"] else "finetune"
    words = ["keras-vit", name]
    for parameter in load_command(name).params:
        value = settings.get(parameter.name, parameter.default)
        if parameter.name == "dataset":
            value = describe_dataset(value)
        if parameter.is_flag and value:
            words.append(parameter.opts[0])
        elif not parameter.is_flag and value is not None and value != parameter.default:
            words += [parameter.opts[0], f"{value:g}" if isinstance(value, float) else str(value)]
    return shlex.join([*words, "--out", out])


def measure_minutes(run):
    """From the first files of a run's stages, none of which was resumed, to their last weights; with the minutes of
    the weights that it began with, if these ship.
    """
    spans = [(max(path.stat().st_mtime for path in stage.glob("*.weights.npz")), stage) for stage in list_stages(run)]
    seconds = sum(end - (stage / "config.json").stat().st_mtime for end, stage in spans)
    return find_beginning(run).get("minutes", 0) + round(seconds / 60)


def find_variant(config):
    """The variant of a configuration; a model without one has no name to ship by."""
    name = name_architecture(config)
    if name not in VARIANTS:
        raise SystemExit(f"No variant is a model of {name}: add a row to VARIANTS in keras_vit/models/variants.py.")
    return name


def save_float16(model, path):
    """Writes what `zoo.save` does, in float16, which `zoo.load` reads as any other precision."""
    zoo.save(model, path)
    with np.load(path) as arrays:
        names = [name.removesuffix(".npy") for name in arrays.zip.namelist() if name.endswith(".npy")]
        texts = {name: arrays.zip.read(name) for name in arrays.zip.namelist() if not name.endswith(".npy")}
        comment = arrays.zip.comment
        rounded = {name: arrays[name].astype("float16") for name in names}
    np.savez(path, **rounded)
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = comment  # the model's description, or, if it is long, a member of its own
        for name, text in texts.items():
            archive.writestr(name, text)


def measure_accuracy(model, examples):
    """The `Share` of right answers."""
    return evaluation.evaluate(model, examples, 250).top1


def percent(share):
    return round(100 * share.value, 2)


def describe_row(model, tag, path, run, measured, minutes):
    """The row of registry.json for the weights in `path`.

    Args:
        model: as it is loaded from `path`.
        tag: of the row.
        path: of the float16 weights.
        run: the folder of the run that made them.
        measured: {"float32", "float16", "sample": Share}.
        minutes: that the run took.
    """
    facts, begun = read_facts(run), read_facts(list_stages(run)[0])
    test_set, settings, recipe = TEST_SETS[tag], facts["settings"], facts["recipe"]
    dataset = describe_dataset(settings["dataset"])
    record = dict(
        command=restore_commands(run),
        trained_on=f"{recipe['examples']:,} images of {dataset}, by the recipe {recipe['name']}",
        weights_from=find_beginning(run).get("weights_from") or describe_beginning(begun["settings"]),
        seed=settings["seed"],
        minutes=minutes,
        machine=MACHINE,
        versions=facts["versions"],
        data=test_set.data,
        tested_on=test_set.name,
        test_images=measured["float16"].count,
        float32_accuracy=percent(measured["float32"]),
        sample=test_set.sample,
        sample_images=measured["sample"].count,
        sample_right=measured["sample"].right,
    )
    config, preprocessing = model.config, model.preprocessing
    return {
        "variant": find_variant(config),
        "tag": tag,
        "collection": tag,
        "file": path.name,
        "parameters": model.count_params(),
        "bytes": path.stat().st_size,
        "bytes_source": "exact",
        "sha256": sha256(path),
        "resolution": preprocessing.image_size[0],
        "accuracy": percent(measured["float16"]),
        "accuracy_source": "keras-vit evaluate",
        "record": record,
    }


def require_shippable(model, tag, path):
    """Refuses a model of other classes than the tag's, and a file that is too large."""
    classes = class_names(TEST_SETS[tag].dataset)
    if model.labels != classes:
        raise SystemExit(f"{tag} has the classes {classes}, the run has {model.labels}: it does not ship.")
    if path.stat().st_size >= MOST_BYTES:
        raise SystemExit(f"The weights have {path.stat().st_size:,} bytes; less than {MOST_BYTES:,} ship.")


def require_described(row, model):
    """Refuses a model that the row does not describe, since its name would load another, or that rounding changed."""
    for name in ("config", "preprocessing"):
        stated, found = getattr(row, name), getattr(model, name)
        if stated != found:
            raise SystemExit(f"The row states the {name} {stated}, the run has {found}: it does not ship.")
    before = row.record["float32_accuracy"]
    if before - row.accuracy > MOST_LOST:
        raise SystemExit(f"Rounding to float16 costs more than {MOST_LOST} points: {before} % -> {row.accuracy} %.")


def format_card(row, model):
    """The model card of a row with a record, as export writes cards."""
    record = row.record
    about = describe_model(model, model, [tensor.shape for tensor in model.inputs], model.preprocessing)
    about |= {
        "name": row.name,
        "architecture": row.variant,
        "artefacts": [],
        "licence": row.licence,
        "versions": record["versions"],
        **row.history,
    }
    training = [
        textwrap.indent(record["command"], "    "),
        f"- Seed: {record['seed']}",
        f"- Time: {record['minutes']} minutes on {record['machine']}",
        f"- Data: {record['data']}",
        f"- Rounded to float16: {row.accuracy:.2f} % on the test set, {record['float32_accuracy']:.2f} % before",
        f"- On the sample tests/samples/{record['sample']}: {record['sample_right']} of {record['sample_images']}",
        f"- File: {row.file}, {row.bytes:,} bytes, SHA-256 {row.sha256}",
    ]
    parts = [
        write_front_matter(about),
        f"# {row.name}",
        list_model_facts(about),
        describe_classes(about["labels"], about["probabilities"]),
        "## Training",
        "\n\n".join([training[0], "\n".join(training[1:])]),
        f"## Use\n\n    keras-vit predict photo.png --model {row.name}    # no download: it comes with the package",
    ]
    return "\n\n".join(parts) + "\n"


def describe_collection(tag):
    """What the rows of a tag share."""
    dataset = TEST_SETS[tag].dataset
    return {
        "url": rows.LOCAL,
        "source": "this package",
        "licence": LICENCE,
        "pretraining": dataset,
        "dataset": dataset,
        "num_classes": len(class_names(dataset)),
    }


def add_row(registry, tag, row):
    """The registry with the row, in place of the one that has its name or after its variant's others."""
    order = list(VARIANTS)
    named = {(each["variant"], each["tag"]): each for each in [*registry["checkpoints"], row]}
    return registry | {
        "collections": registry["collections"] | {tag: describe_collection(tag)},
        "defaults": registry["defaults"] | {row["variant"]: registry["defaults"].get(row["variant"], tag)},
        "checkpoints": sorted(named.values(), key=lambda each: order.index(each["variant"])),
    }


def format_registry(registry):
    """The registry as the file has it: a line for each collection, default, table of a grammar and checkpoint."""
    lines = {
        part: [f"  {json.dumps(name)}: {json.dumps(value, **LOOK)}" for name, value in registry[part].items()]
        for part in ("collections", "defaults", "grammars")
    }
    found = [f"  {json.dumps(row, **LOOK)}" for row in registry["checkpoints"]]
    join = ",\n".join
    parts = [f' "{part}": {{\n{join(lines[part])}\n }}' for part in lines] + [f' "checkpoints": [\n{join(found)}\n ]']
    return f"{{\n{join(parts)}\n}}\n"


def ship(run, tag, place, root=ROOT, minutes=None):
    """Writes the weights, card, row and tables of a finished run; returns the row.

    Args:
        run: folder of the run.
        tag: a key of TEST_SETS.
        place: folder of its test set.
        root: of the checkout that is written in.
        minutes: that the run took; None measures them, if it was not resumed.
    """
    source = Path(model_of(run))
    minutes = measure_minutes(run) if minutes is None else minutes
    whole, test_set = zoo.load(source), TEST_SETS[tag].load(place)
    name = f"{find_variant(whole.config)}-{tag}".replace("/", "_")
    weights, registry = root / "zoo" / "weights", root / "zoo" / "registry.json"
    weights.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.npz"
        save_float16(whole, path)
        model = zoo.load(path)
        require_shippable(model, tag, path)
        measured = {"float32": measure_accuracy(whole, test_set), "float16": measure_accuracy(model, test_set)}
        measured["sample"] = measure_accuracy(model, load_sample(tag, Path(folder) / "sample"))
        fields = describe_row(model, tag, path, run, measured, minutes)
        row = rows.PublicCheckpoint(**describe_collection(tag) | fields)
        require_described(row, model)
        shutil.copy(path, weights)
    (weights / f"{name}.md").write_text(format_card(row, model), "utf-8")
    registry.write_text(format_registry(add_row(json.loads(registry.read_text("utf-8")), tag, fields)), "utf-8")
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the folder of a finished run")
    parser.add_argument("tag", choices=TEST_SETS)
    parser.add_argument("place", type=Path, help="the folder of the test set")
    parser.add_argument("--minutes", type=int, help="that the run took, for one that was resumed")
    arguments = parser.parse_args()
    row = ship(arguments.run, arguments.tag, arguments.place, minutes=arguments.minutes)
    rows.read_registry.cache_clear()
    rows.checkpoints.cache_clear()
    document = ROOT / "docs" / "models.md"
    document.write_text(page.update_page(document.read_text("utf-8")), "utf-8")
    zoo.load(row.name)
    record = row.record
    print(
        f"{row.name}: {row.accuracy} % of {record['test_images']:,} ({record['float32_accuracy']} % in float32), "
        f"{record['sample_right']} of {record['sample_images']} of the sample, {row.bytes:,} bytes."
    )


if __name__ == "__main__":
    main()
