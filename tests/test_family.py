"""docs/family.csv and its page: what they promise holds, and what the table says of a model is so again."""

import collections
import importlib.util

import family_table
import pytest

ROWS = family_table.read_rows(family_table.TABLE)
SAMPLE = [
    ("timm", "vit_tiny_patch16_224.augreg_in21k_ft_in1k"),
    ("timm", "vit_small_patch16_224.dino"),
    ("timm", "vit_small_patch14_dinov2.lvd142m"),
    ("timm", "deit3_small_patch16_224.fb_in1k"),
    ("timm", "beit_base_patch16_224.in22k_ft_in22k_in1k"),
    ("transformers", "ViTForImageClassification"),
    ("transformers", "CLIPModel, quick GELU"),
    ("transformers", "SiglipModel"),
    ("transformers", "DINOv3ViTModel"),
]


def test_nothing_is_silently_wrong():
    outcomes = collections.Counter(row.outcome for row in ROWS.values())
    assert outcomes.keys() <= {"right", "refused", "not tried"} and sum(library == "timm" for library, _ in ROWS) == 429
    assert len({name.partition(",")[0] for library, name in ROWS if library == "transformers"}) >= 10


def test_what_is_right_is_so_in_keras_and_exported():
    for row in ROWS.values():
        if row.outcome == "refused":
            assert len(row.reason) > 30 and row.reason.endswith(".") and not row.keras, row
        elif row.outcome == "right" and not row.reason:
            assert all(float(value or 0) <= 1e-5 for value in (row.keras, row.onnx, row.tflite, row.saved_model)), row
    exported = [row for row in ROWS.values() if row.onnx]
    assert len(exported) > len(ROWS) / 4


def test_the_page_counts_what_the_table_holds():
    page = family_table.PAGE.read_text("utf-8")
    assert family_table.MARKED.search(page)[0] == family_table.format_counts(list(ROWS.values()))


@pytest.mark.slow
@pytest.mark.parametrize(("library", "name"), SAMPLE)
def test_a_row_again(library, name):
    if missing := [name for name in ("timm", "torch", "transformers") if importlib.util.find_spec(name) is None]:
        pytest.skip(f"{', '.join(missing)}: not installed")
    (again, _, _), kept = family_table.measure_safely(library, name, ["onnx"], {}), ROWS[library, name]
    assert (again.outcome, again.reason) == (kept.outcome, kept.reason)
