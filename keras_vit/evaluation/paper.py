"""The paper's printed numbers as rows, each under the table that prints it."""

import importlib.resources
import json
from collections.abc import Iterable
from typing import Any

from keras_vit.data.datasets.schemes import bare_name
from keras_vit.errors import UnknownNameError, describe_unknown
from keras_vit.models.config import ResNetConfig, ViTConfig
from keras_vit.models.variants import VARIANTS

# The tables' names of the datasets of `data.load`: in their column "dataset", or as names of columns.
DATASETS = {
    "imagenet2012": ("ImageNet",),
    "imagenet2012_real": ("ImageNet ReaL",),
    "cifar10": ("CIFAR-10",),
    "cifar100": ("CIFAR-100",),
    "oxford_iiit_pet": ("Oxford-IIIT Pets", "Oxford-IIIT-Pets", "Pets"),
    "oxford_flowers102": ("Oxford Flowers-102", "Flowers"),
    "objectnet": ("top-1",),
    "vtab": ("VTAB (19 tasks)",),
}
# Table 9's names of VTAB's tasks, in the order of its columns, by the groups of arXiv 1910.04867.
VTAB_GROUPS = {
    "Natural": {
        "caltech101": "Caltech 101",
        "cifar100": "CIFAR-100",
        "dtd": "DTD",
        "oxford_flowers102": "Flowers102",
        "oxford_iiit_pet": "Pets",
        "sun397": "Sun397",
        "svhn": "SVHN",
    },
    "Specialized": {
        "patch_camelyon": "Camelyon",
        "eurosat": "EuroSAT",
        "resisc45": "Resisc45",
        "diabetic_retinopathy": "Retinopathy",
    },
    "Structured": {
        "clevr_count_all": "Clevr-Count",
        "clevr_closest_object_distance": "Clevr-Dist",
        "dmlab": "DMLab",
        "dsprites_x_position": "dSpr-Loc",
        "dsprites_orientation": "dSpr-Ori",
        "kitti_closest_vehicle_distance": "KITTI-Dist",
        "smallnorb_azimuth": "sNORB-Azim",
        "smallnorb_elevation": "sNORB-Elev",
    },
}
VTAB_TASKS = VTAB_GROUPS["Natural"] | VTAB_GROUPS["Specialized"] | VTAB_GROUPS["Structured"]


def published(table: int | str) -> list[dict]:
    """The rows of one of the paper's tables, {column: value}, as printed; None for a dash in the paper.

    Tables 5 and 6 disagree on ViT-H/14 (ImageNet 88.04 and 88.08), and Table 6 prints 859 exaFLOPs for 7 epochs of
    R50x1+ViT-L/16, although half of its 14 epochs is 834.

    Args:
        table: 1, 2, 5, 6, 7, 8 or 9; "Figure 2", the means of VTAB's groups; "B.1.2", masked patch prediction; "D.9",
            ObjectNet.

    Raises:
        UnknownNameError: for any other table.

    >>> [row["exaFLOPs"] for row in published(6) if row["model"] == "ViT-L/16"]
    [783, 1567]
    """
    # {table: {"title", "columns", "rows"}}
    known = json.loads(importlib.resources.files("keras_vit.evaluation").joinpath("paper.json").read_text("utf-8"))
    if str(table) not in known:
        raise UnknownNameError(describe_unknown("table of numbers", str(table), known))
    found = known[str(table)]
    return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]


def name_variant(config: Any) -> str | None:
    """The variant with this architecture, for any head, image size and dropout; None if there is none.

    >>> name_variant(keras_vit.zoo.load("ViT-Test/4", weights=None, num_classes=10, image_size=16).config)
    'ViT-Test/4'
    """

    def shape(config):
        if isinstance(config, ResNetConfig):
            return config.depths, config.width_factor
        sizes = config.patch_size, config.hidden_size, config.num_layers, config.num_heads, config.mlp_dim
        return *sizes, config.backbone and (config.backbone.depths, config.backbone.width_factor)

    if type(config) not in (ViTConfig, ResNetConfig):
        return None
    rows = (row for row in VARIANTS.values() if row.config_class is type(config))
    return next((row.name for row in rows if shape(row.config) == shape(config)), None)


def names_in_tables(model):
    """The names under which the tables print a variant."""
    if "+" in model:
        return {model, model.replace("+", "x1+", 1)}  # R50x1+ViT-B/16
    names = {model, f"ResNet{model[1:]}"} if model.startswith("R") else {model}
    return names | ({"BiT-L"} if model == "R152x4" else set())


def find_few_shot(model, dataset, shots):
    """Table 8's row of ViT-B/16 with its learned 1-D position embedding: ImageNet, 5 shots, linear."""
    if (model, dataset, shots) != ("ViT-B/16", "imagenet2012", 5):
        return []
    (row,) = (row for row in published(8) if row["position embedding"] == "1d")
    value = 100 * row["stem"]
    return [{"table": "8", "value": value, "model": model, "pre-training": None, "deviation": None}]


def find_published(model: str | None, dataset: str, shots: int | None = None) -> list[dict]:
    """The paper's top-1 accuracies of a model on a dataset (Tables 2, 5, 6 and 9, D.9; with shots, Table 8).

    Args:
        model: a variant, such as "ViT-L/16"; None for any other model.
        dataset: a name for `keras_vit.data.load`; "vtab" for the mean over VTAB's tasks.
        shots: number per class, for few-shot accuracy; None for fine-tuning.

    Returns:
        A list of {"table", "model", "pre-training", "value", "deviation"}, in percent, None for what the table does not
        say; with "top-5" if the paper has it.

    >>> [row["value"] for row in find_published("ViT-L/16", "cifar10") if row["table"] == "2"]
    [99.42, 99.15]
    """
    dataset = bare_name(dataset)
    if shots is not None:
        return find_few_shot(model, dataset, shots)
    task = VTAB_TASKS.get(dataset.removeprefix("vtab/")) if dataset.startswith("vtab/") else None
    names = (task,) if task else DATASETS.get(dataset, ())
    found = []
    for table in ("9",) if task else ("2", "5", "6", "D.9"):
        for row in published(table):
            values = [row["value"]] if row.get("dataset") in names else [row[name] for name in names if name in row]
            if row["model"] in names_in_tables(model or "") and values:
                source = row.get("pre-training") or (f"JFT-300M, {row['epochs']} epochs" if "epochs" in row else None)
                given = {"model": row["model"], "pre-training": source, "deviation": row.get("deviation")}
                top5 = {"top-5": row["top-5"]} if "top-5" in row else {}
                found.append({"table": table, "value": values[0], **given, **top5})
    return found


def describe_accuracy(value: float, deviation: float | None) -> str:
    """An accuracy and its deviation, in percent, as Table 2 prints them: "98.10 ± 0.05"."""
    return f"{value:.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")


def name_table(table: str) -> str:
    """The name of a table, "Table 6", or of the place of a number in the text, "Appendix D.9"."""
    return f"Table {table}" if table.isdigit() else f"Appendix {table}"


def describe_published(rows: Iterable[dict]) -> list[str]:
    """The rows of `find_published`, one line each.

    >>> describe_published(find_published("ViT-H/14", "vtab"))
    ['77.63 ± 0.23 %  ViT-H/14, pre-trained on JFT-300M (Table 2)']
    """
    lines = []
    for row in rows:
        source = f", pre-trained on {row['pre-training']}" if row["pre-training"] else ""
        source += f", top-5 {row['top-5']:.2f} %" if "top-5" in row else ""
        where = name_table(row["table"])
        lines.append(f"{describe_accuracy(row['value'], row['deviation'])} %  {row['model']}{source} ({where})")
    return lines
