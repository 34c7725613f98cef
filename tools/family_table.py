"""docs/family.csv: what becomes of every ViT of timm and of transformers that `zoo.load` is given.

docs/family.md shows its counts.

    python tools/family_table.py                        # all: two hours of one core; goes on where it stopped
    python tools/family_table.py --only "*dinov2*"      # these rows alone, on the screen
    python tools/family_table.py --formats onnx         # without the others

A model has random weights, two blocks and at most 1,000 classes, and is saved as its library saves it. It is "right"
where what Keras and every export compute differs from the library by at most 1e-5 of the largest output, "silently
wrong" where it loads and differs by more, "refused" where `zoo.load` says why not, "broken" where it fails otherwise.
Arguments that a refusal asks for are given. Checkpoints that differ by their weights alone are computed once, models of
one configuration are exported once. The smallest models come first.
"""

import argparse
import concurrent.futures
import csv
import fnmatch
import multiprocessing
import re
import signal
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy as np
import transformers_models
from random_models import draw_images, import_timm, randomize, run, save_timm

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "family.csv"
PAGE = ROOT / "docs" / "family.md"
MARKED = re.compile(r"(?<=<!-- counts: python tools/family_table.py -->\n).*?(?=<!-- end -->)", re.DOTALL)
# The families of docs/family.md, by the first pattern that a name matches.
FAMILIES = {
    "DINOv3, EUPE": "dinov3",
    "DINOv2": "dinov2",
    "SigLIP, SigLIP 2": "siglip",
    "EVA, EVA-02": "^eva",
    "CLIP": "clip",
    "DeiT-III": "^deit3",
    "DeiT": "^deit",
    "BEiT": "^beit|^data2vec",
    "Perception Encoder": "^vit_pe",
    "RoPE-ViT": "rope",
    "SBB": "sbb",
    "AIMv2": "^aimv2",
    "ViT, AugReg, MAE, DINO and others": "",
}
MODULES = ("vision_transformer", "eva", "beit", "deit")
FORMATS = {"onnx": "model.onnx", "tflite": "model.tflite", "saved_model": "saved_model"}
IS_NUMBER = re.compile(r"[\d.e+-]+|inf").fullmatch
LIMIT = 1e-5
ROUNDING = 1e-9  # of two computations in float64
MOST_CLASSES = 1000
# Models whose blocks differ: the heads of keys and values of a first and of a middle block.
HEADS_OF_KEYS = {"vit_base_patch16_sapiens2": (12, 6), "vit_large_patch16_sapiens2": (16, 8)}
HEADS_OF_KEYS |= {"vit_huge_patch16_sapiens2": (16, 8), "vit_giant_patch16_sapiens2": (24, 12)}
HEADS_OF_KEYS |= {"vit_5b_patch16_sapiens2": (32, 16)}
ROWS_OF_A_PROCESS = 25  # TensorFlow keeps some memory of each


@dataclass(frozen=True)
class Row:
    """A line of the table: the greatest differences over the largest output, or why there are none."""

    library: str
    name: str
    outcome: str = ""
    keras: str = ""
    onnx: str = ""
    tflite: str = ""
    saved_model: str = ""
    reason: str = ""


def list_names():
    """(library, name) of every row: timm's published tags, and the rows of tools/transformers_models.py."""
    timm = import_timm()
    tags = [("timm", name) for module in MODULES for name in timm.list_models(module=module, pretrained=True)]
    return tags + [("transformers", name_row(row)) for row in transformers_models.ROWS]


def name_row(row):
    return f"{row[0]}, {row[1]}" if row[1] else row[0]


def arguments_of(tag):
    """What makes the small model of a published tag of timm."""
    cfg = import_timm().get_pretrained_cfg(tag)
    heads = HEADS_OF_KEYS.get(cfg.architecture)
    more = {"num_kv_heads": heads} if heads else {}
    return {"depth": 2, "num_classes": min(cfg.num_classes, MOST_CLASSES), **more}


def tell_apart(library, name):
    """What two rows share that are the same model but for their weights."""
    if library != "timm":
        return library, name
    cfg = import_timm().get_pretrained_cfg(name)
    shape = (cfg.input_size, cfg.fixed_input_size, cfg.first_conv, cfg.classifier)
    return library, cfg.architecture, min(cfg.num_classes, MOST_CLASSES), *map(str, shape)


def count_numbers(library, name):
    """How many numbers the small model of a row has; 0 for transformers' rows, which are all tiny."""
    import torch

    if library != "timm":
        return 0
    with torch.device("meta"):
        model = import_timm().create_model(name, **arguments_of(name))
    return sum(parameter.numel() for parameter in model.parameters())


def build(library, name):
    """(the model with random weights, what it answers to pixels, the shape of an image)."""
    if library == "timm":
        model = randomize(import_timm().create_model(name, **arguments_of(name)))
        return model, model, tuple(model.patch_embed.img_size), 3
    row = next(row for row in transformers_models.ROWS if name_row(row) == name)
    model = randomize(transformers_models.build(row))
    config = getattr(model.config, "vision_config", model.config)
    size = config.image_size
    size = tuple(size) if isinstance(size, list | tuple) else (size, size)
    return model, lambda pixels: transformers_models.answer(model, pixels), size, config.num_channels


def find_difference(found, expected):
    """The greatest difference over the largest number expected; of other shapes, infinity."""
    if found.shape != expected.shape or not np.isfinite(found).all():
        return float("inf")
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def is_rounding(path, images, model, call):
    """Whether both compute the same in float64."""
    import keras

    from keras_vit import zoo

    model.double()
    before = keras.config.floatx()
    keras.config.set_floatx("float64")
    try:
        ours = np.asarray(zoo.load(path, dtype="float64")(images.astype("float64")))
    finally:
        keras.config.set_floatx(before)
    return find_difference(ours, run(call, images, "float64")) < ROUNDING


def load_as_asked(path, model):
    """The model of a file; arguments that a refusal asks for are given, as whoever reads it would."""
    from keras_vit import zoo
    from keras_vit.errors import CheckpointError

    given = {}
    answers = {"activation": "gelu"}
    if hasattr(model, "blocks"):
        answers["num_heads"] = getattr(model.blocks[0], "attn", model.blocks[0]).num_heads
    while True:
        try:
            return zoo.load(path, **given)
        except CheckpointError as error:
            asked = [name for name in answers if f"{name}=" in str(error) and name not in given]
            if not asked:
                raise
            given |= {name: answers[name] for name in asked}


def measure_exports(loaded, folder, formats, images, expected):
    """{format: difference from the library as text, or why there is no export}."""
    from keras_vit.errors import ExportError
    from keras_vit.export import convert
    from keras_vit.export.opening import open_artefact

    found = {}
    for form in formats:
        try:
            path = convert(loaded, folder / FORMATS[form], images=images).path
            found[form] = f"{find_difference(open_artefact(Path(path)).run(images), expected):.1e}"
        except ExportError as error:
            found[form] = f"{type(error).__name__}: {error}"
    return found


def graph_of(config):
    """The configuration without what changes no exported graph: how positions are resized, what scales began with."""
    config = replace(config, position_interpolation="linear")
    return config if config.layer_scale is None else replace(config, layer_scale=1.0)


def measure(library, name, formats, folder, exported):
    """(the row of a model that is saved in `folder`, its configuration, and what `measure_exports` found for that).

    Args:
        exported: {configuration: what `measure_exports` found for an earlier row}.
    """
    from keras_vit.errors import KerasVitError

    row = Row(library, name)
    model, call, size, channels = build(library, name)
    save_timm(model, folder) if library == "timm" else model.save_pretrained(folder)
    path = folder / "model.safetensors"
    try:
        loaded = load_as_asked(path, model)
    except KerasVitError as error:
        reason = str(error).replace(str(path), "The file").replace(str(folder), "The folder")
        return replace(row, outcome="refused", reason=reason), None, {}
    images = draw_images(size, channels=channels)
    expected = run(call, images)
    difference = find_difference(np.asarray(loaded.predict_on_batch(images)), expected)
    graph, exports = graph_of(loaded.config), {}
    if difference <= LIMIT:
        exports = exported.get(graph) or measure_exports(loaded, folder, formats, images, expected)
    cells = {form: value for form, value in exports.items() if IS_NUMBER(value)}
    largest = max([difference, *map(float, cells.values())])
    outcome, reasons = "right", []
    if largest > LIMIT:
        outcome = "silently wrong"
        if largest < 100 * LIMIT and is_rounding(path, images, model, call):
            outcome, reasons = "right", ["rounding: the same in float64"]
    reasons += [f"no {form}: {value}" for form, value in exports.items() if form not in cells]
    row = replace(row, outcome=outcome, keras=f"{difference:.1e}", reason="; ".join(reasons), **cells)
    return row, graph, exports


def measure_safely(library, name, formats, exported):
    """`measure` in a folder of its own; what no refusal foresees is a row, too."""
    import keras
    import torch

    torch.set_num_threads(1)
    keras.backend.clear_session()
    try:
        with tempfile.TemporaryDirectory() as folder:
            return measure(library, name, formats, Path(folder), exported)
    except Exception as error:  # whatever the libraries raise
        message = " ".join(str(error).split())
        return Row(library, name, "broken", reason=f"{type(error).__name__}: {message:.300}"), None, {}


def read_rows(path):
    """{(library, name): Row} of a table, {} where there is none."""
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        return {(line["library"], line["name"]): Row(**line) for line in csv.DictReader(file)}


def write_rows(path, rows):
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def measure_all(names, formats, done, keep):
    """The rows of those names, in their order; `done` are known already, `keep(rows)` is called after each new one."""
    computed, exported = {tell_apart(*name): row for name, row in done.items()}, {}
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, context, max_tasks_per_child=ROWS_OF_A_PROCESS) as pool:
        for name in sorted(names, key=lambda name: count_numbers(*name)):
            kind = tell_apart(*name)
            if kind not in computed:
                computed[kind], graph, exports = pool.submit(measure_safely, *name, formats, exported).result()
                exported[graph] = exports
                print(describe(replace(computed[kind], name=name[1])), flush=True)
            done[name] = replace(computed[kind], library=name[0], name=name[1])
            keep([done[each] for each in names if each in done])
    return [done[name] for name in names]


def describe(row):
    return "  ".join(
        filter(None, (row.name, row.outcome, row.keras, row.onnx, row.tflite, row.saved_model, row.reason))
    )


def find_family(row):
    return next(family for family, pattern in FAMILIES.items() if re.search(pattern, row.name.lower()))


def format_largest(rows, column):
    """The greatest difference of a column, to one digit; nothing where there is none."""
    numbers = [float(value) for row in rows if IS_NUMBER(value := getattr(row, column))]
    return f"{max(numbers):.0e}" if numbers else ""


def format_counts(rows):
    """The table of docs/family.md: for each family what becomes of its checkpoints in timm and in transformers."""
    lines = [
        "| family | timm's tags | right | refused | transformers' classes | right | refused | Keras | ONNX | TFLite |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for family in [*FAMILIES, "all"]:
        own = [row for row in rows if family in ("all", find_family(row))]
        cells = [family]
        for library in ("timm", "transformers"):
            outcomes = [row.outcome for row in own if row.library == library]
            cells += [len(outcomes), outcomes.count("right"), outcomes.count("refused")]
        cells += [format_largest(own, column) for column in ("keras", "onnx", "tflite")]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def write_page(rows):
    PAGE.write_text(MARKED.sub(lambda _: format_counts(rows), PAGE.read_text("utf-8")), "utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="PATTERN", help="rows whose names match, on the screen alone")
    parser.add_argument("--formats", nargs="*", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--out", type=Path, default=TABLE)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the process that computes ends, too
    names = [name for name in list_names() if fnmatch.fnmatch(name[1], arguments.only or "*")]
    part = arguments.out.with_suffix(".part")
    if arguments.only:
        rows = measure_all(names, arguments.formats, {}, lambda rows: None)
    else:
        rows = measure_all(names, arguments.formats, read_rows(part), lambda rows: write_rows(part, rows))
        write_rows(arguments.out, rows)
        part.unlink()
        if arguments.out == TABLE:
            write_page(rows)
    for (library, outcome), count in sorted(Counter((row.library, row.outcome) for row in rows).items()):
        print(f"{library}: {count} {outcome}")
    return int(any(row.outcome in ("silently wrong", "broken") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
