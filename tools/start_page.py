"""The table of docs/start.md: what fine-tuning costs, from benchmarks/recorded.csv and `evaluation.cost`.

    python tools/start_page.py

writes it between the page's marks. What has a ~ is computed: training by the operations that `evaluation.cost` counts,
on two cores at the recorded rate of ViT-S/16, elsewhere at a SHARE of the peak that the maker states; a frozen backbone
as the recorded forward pass; memory from the recorded step of 8 images. The rest is measured.
"""

import csv
import math
import re
from pathlib import Path

from keras_vit.evaluation import cost
from keras_vit.models import variant
from keras_vit.trainers.choices import choose_checkpoint
from keras_vit.training import recipe
from keras_vit.zoo.names.registry import resolve

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "start.md"
RECORD = ROOT / "benchmarks" / "recorded.csv"
MARKED = re.compile(r"(?<=<!-- costs -->\n).*?(?=<!-- end -->)", re.DOTALL)

MODELS = ("ViT-Ti/16", "ViT-S/16", "R50x1", "ViT-B/16", "ViT-L/16")
PHOTOS = 500
SIZE = 224
PART = 32  # images of that size in a microbatch
PASSES = 3  # forward, and backward twice as much
# Operations a second, in float16 and bfloat16, of NVIDIA's T4 and of a chip of Google's TPU v5e, as their makers state.
PEAKS = {"T4": 65e12, "v5e": 197e12}
SHARE = 0.3  # of the peak, assumed
# GB of a process that trains on PART images with Adam: python tests/support/training_memory.py ViT-Ti/16 224 12 32
PROCESS = {"ViT-Ti/16": 2.3, "ViT-S/16": 3.7, "ViT-B/16": 6.7}
SLOTS = 12  # bytes a weight takes with its gradient and momentum, in the recorded steps of SGD


def read_record():
    """(subject, model or kind of files, batch, contestant) -> (median, rate), of SIZE pixels in float32."""
    with RECORD.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if (row["image_size"], row["precision"]) == (str(SIZE), "float32")]
    return {
        (row["subject"], row["model"] or row["kind"], row["batch"], row["contestant"]): (
            float(row["median"]),
            float(row["rate"]),
        )
        for row in rows
        if row["median"]
    }


def describe_minutes(seconds, computed=True):
    minutes = math.ceil(seconds / 60)
    text = f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"
    return f"~{text}" if computed else text


def describe_memory(name, parameters, record):
    """GB of a training step of PART images."""
    if name in PROCESS:
        return f"{PROCESS[name]} GB"
    fixed, (step, _) = SLOTS * parameters, record["memory", name, "8", "keras_vit"]
    return f"~{(fixed + (step - fixed) * PART / 8) / 1e9:.0f} GB"


def write_row(name, record):
    counted = cost(variant(name).config, SIZE)
    images = recipe("finetune-photos", examples=PHOTOS).images_seen
    own = record.get(("training", name, "8", "keras_vit"))
    seconds = (
        images / 8 * own[0]
        if own
        else PASSES * counted.flops * images / record["training", "ViT-S/16", "8", "keras_vit"][1]
    )
    forward = images / 32 * record["inference", name, "32", "keras_vit"][0]
    decoding = images / record["pipeline", "JPEG", "64", "train, float32"][1]
    computed = {device: PASSES * counted.flops * images / (SHARE * peak) for device, peak in PEAKS.items()}
    cells = (
        f"`{name}`",
        f"{resolve(choose_checkpoint(name)).bytes / 1e6:,.0f} MB",
        describe_minutes(seconds, own is None),
        describe_minutes(forward),
        describe_minutes(max(computed["T4"], decoding)),
        describe_minutes(computed["v5e"]),
        describe_memory(name, counted.parameters, record),
    )
    return f"| {' | '.join(cells)} |"


def write_table():
    """The table as Markdown, a row for each of MODELS."""
    record = read_record()
    heads = ("`--model`", "download", "two cores", "two cores, `--freeze backbone`", "T4", "TPU v5e chip", "memory")
    rows = (write_row(name, record) for name in MODELS)
    return "\n".join([f"| {' | '.join(heads)} |", "|---|" + "---:|" * (len(heads) - 1), *rows, ""])


if __name__ == "__main__":
    PAGE.write_text(MARKED.sub(lambda _: write_table(), PAGE.read_text("utf-8")), "utf-8")
