"""Names of files by the authors' grammars."""

import itertools

import pytest

from keras_vit.errors import UnknownNameError
from keras_vit.zoo.names import listed_models, registry, rows
from keras_vit.zoo.names.rows import checkpoints


@pytest.mark.parametrize("row", [row for row in checkpoints() if "/augreg/" in row.url], ids=lambda row: row.name)
def test_augreg_rows_agree_with_their_stems(row):
    stem = row.url.rpartition("/")[2].removesuffix(".npz")
    parsed = registry.resolve(f"augreg/{stem}")
    assert parsed.name == f"augreg/{stem}"
    for field in ("url", "variant", "parameters", "num_classes", "resolution", "crop", "pretraining", "dataset"):
        assert getattr(parsed, field) == getattr(row, field), field
    assert parsed.config == row.config


def test_names_of_finetuned_files():
    """The head and the input of each follow from its name (vit_jax_augreg.ipynb)."""
    stem = "augreg/R_Ti_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0"
    tasks = {"imagenet2012": 1000, "cifar100": 100, "oxford_iiit_pet": 37, "kitti": 4, "resisc45": 45}
    grid = itertools.product(tasks, ("0k", "2k", "10k", "20k"), ("0.001", "0.003", "0.01", "0.03"), (224, 384))
    for task, steps, rate, resolution in grid:
        row = registry.resolve(f"{stem}--{task}-steps_{steps}-lr_{rate}-res_{resolution}.npz")
        assert (row.num_classes, row.resolution, row.crop) == (tasks[task], resolution, None)


def test_every_vtab_name():
    grid = itertools.product(("R50x1", "R101x1", "R50x3", "R101x3", "R152x4"), range(3), rows.VTAB_TASKS)
    found = [registry.resolve(f"vtab/BiT-M-{model}-run{run}-{task}") for model, run, task in grid]
    assert len({row.url for row in found}) == 285
    # Section 3.3 of arXiv 1912.11370, and its footnote 1.
    sizes = {(row.variant == "R152x4", row.dataset in rows.SMALL_IMAGES): row.resolution for row in found}
    assert sizes == {(False, True): 128, (True, True): 128, (False, False): 384, (True, False): 480}
    assert registry.resolve("vtab/BiT-M-R101x3-run2-kitti-distance").num_classes == 4
    assert listed_models.info("vtab/BiT-M-R50x1-run0-svhn").dataset == "svhn"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("ViT-B16", "Here it is called ViT-B/16"),
        ("vit-b/16", "Here it is called ViT-B/16"),
        ("ViT-B/16:augreg-21k", "Did you mean augreg-i21k"),
        ("R152x1", "no public weights"),
        ("nothing at all", "keras-vit list, in Python zoo.list"),
        ("hf://alone", "hf://owner/repo"),
        ("augreg/Ti_16", "The authors have no file"),
        ("augreg/Ti_16-i21k-300ep-lr_0.001-aug_light3-wd_0.1-do_0.0-sd_0.0", "The authors have no file"),
        ("augreg/Ti_17-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0", "The authors have no file"),
        ("vtab/BiT-M-R50x1-run3-svhn", "The authors have no file"),
        ("vtab/BiT-M-R50x1-run0-cats", "The authors have no file"),
    ],
)
def test_unknown_names(name, says):
    with pytest.raises(UnknownNameError, match=says):
        registry.resolve(name)
