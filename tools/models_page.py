"""Writes the tables of docs/models.md from the registry: `python tools/models_page.py docs/models.md`."""

import pathlib
import sys

from keras_vit.models.variants import VARIANTS
from keras_vit.zoo.fetch.places import read_hub
from keras_vit.zoo.names import listed_models, registry
from keras_vit.zoo.names.rows import checkpoints, default_tag

MARK = "<!-- From here on: python tools/models_page.py docs/models.md -->"
COLUMNS = "| name | params (M) | GFLOPs | pixels | classes | top-1 | top-1 from | MiB | weights from | note |"
RULE = "|---|---:|---:|---:|---:|---:|---|---:|---|---|"


def find_link(checkpoint):
    """The address of the weights, or the card of those that come with the package, or the page of the Hub."""
    if checkpoint.url.startswith("hf://"):
        return f"https://huggingface.co/{read_hub(checkpoint.url)[0]}"
    return f"../zoo/weights/{checkpoint.file.removesuffix('.npz')}.md" if checkpoint.file else checkpoint.url


def format_row(row):
    checkpoint = registry.resolve(row.name)
    name, *numbers, accuracy, size = listed_models.format_cells(row)
    name = f"[`{row.name}`]({find_link(checkpoint)}){' *' if row.default else ''}"
    size = f"{'~' if checkpoint.bytes_source == 'computed' else ''}{size}"
    fields = (name, *numbers, accuracy, row.source or "", size, checkpoint.source, row.note or "")
    return f"| {' | '.join(fields)} |"


def format_section(family):
    rows = listed_models.list(pretrained=True, family=family)
    return "\n".join([f"### {family}", "", COLUMNS, RULE, *(format_row(row) for row in rows)])


SHIPPED = """\
## Weights that ship

These come with the package, stored in float16: `zoo.load` needs no network for them and keeps nothing in a cache.
`tools/ship.py` made each from a run and measured it on the whole test set; tests/zoo/test_shipped.py measures it again
on a sample. Each name links to a card with the command, the seed and the licences of the data.

| name | trained on | tested on | images | top-1 | before rounding | seed | minutes | kB |
|---|---|---|---:|---:|---:|---:|---:|---:|"""


def format_shipped():
    lines = [SHIPPED]
    for row in (row for row in checkpoints() if row.record):
        record = row.record
        name = f"[`{row.name}`]({find_link(row)})"
        accuracies = f"{row.accuracy:.2f} | {record['float32_accuracy']:.2f}"
        size = f"{row.bytes / 1000:,.0f}"
        cells = (name, record["trained_on"], record["tested_on"], f"{record['test_images']:,}", accuracies)
        lines.append(f"| {' | '.join(cells)} | {record['seed']} | {record['minutes']} | {size} |")
    return "\n".join(lines)


def format_variants_without_weights():
    rows = [listed_models.list_variant(name) for name in VARIANTS if default_tag(name) is None]
    lines = [f"| `{row.name}` | {row.parameters / 1e6:,.1f} | {row.gflops:,.1f} | {row.resolution} |" for row in rows]
    head = "Load them with `weights=None`, or with the path of weights of your own. ViT-Test/4 is for tests."
    return "\n".join([head, "", "| name | params (M) | GFLOPs | pixels |", "|---|---:|---:|---:|", *lines])


def format_licences():
    public = [row for row in checkpoints() if not row.file]
    known = ", ".join(sorted({row.licence for row in public}))
    return (
        f"## Licence\n\nThe repositories that publish the {len(public)} public checkpoints have these licences: "
        f"{known}. google-research's READMEs name none for the weights alone. "
        "The weights that ship are under Apache-2.0."
    )


def update_page(page):
    """The text of the page with its tables made again; what stands above the mark is kept."""
    prose, mark, _ = page.partition(MARK)
    if not mark:
        raise ValueError(f"The page has no line {MARK!r}.")
    sections = [format_shipped(), "## Checkpoints", *(format_section(family) for family in ("ViT", "hybrid", "ResNet"))]
    sections += ["## Variants without public weights", format_variants_without_weights(), format_licences()]
    return prose + "\n\n".join([mark, *sections]) + "\n"


if __name__ == "__main__":
    page = pathlib.Path(sys.argv[1])
    page.write_text(update_page(page.read_text("utf-8")), "utf-8")
