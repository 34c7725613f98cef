"""zoo/registry.json as a text: a row of weights that ship is added, and everything else stays as it is."""

import json

from samples import TEST_SETS

from keras_vit.models.variants import VARIANTS
from keras_vit.zoo.names import rows
from keras_vit.zoo.names.rows import class_names

LICENCE = "Apache-2.0"
LOOK = {"indent": None, "ensure_ascii": False}


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
    return {
        "collections": registry["collections"] | {tag: describe_collection(tag)},
        "defaults": registry["defaults"] | {row["variant"]: registry["defaults"].get(row["variant"], tag)},
        "checkpoints": sorted(named.values(), key=lambda each: order.index(each["variant"])),
    }


def format_registry(registry):
    """The registry as the file has it: a line for each collection, default and checkpoint."""
    lines = {
        part: [f"  {json.dumps(name)}: {json.dumps(value, **LOOK)}" for name, value in registry[part].items()]
        for part in ("collections", "defaults")
    }
    found = [f"  {json.dumps(row, **LOOK)}" for row in registry["checkpoints"]]
    join = ",\n".join
    parts = [f' "{part}": {{\n{join(lines[part])}\n }}' for part in lines] + [f' "checkpoints": [\n{join(found)}\n ]']
    return f"{{\n{join(parts)}\n}}\n"
