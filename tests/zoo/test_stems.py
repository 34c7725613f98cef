"""Names of files by the authors' grammars: those that exist, and no others."""

import itertools

import pytest

from keras_vit.errors import UnknownNameError
from keras_vit.zoo.names import listed_models, registry, stems
from keras_vit.zoo.names.rows import checkpoints

AUGREG_B8 = "augreg/B_8-i21k-300ep-lr_0.001-aug_medium2-wd_0.1-do_0.0-sd_0.0"


@pytest.mark.parametrize("row", [row for row in checkpoints() if "/augreg/" in row.url], ids=lambda row: row.name)
def test_augreg_rows_agree_with_their_stems(row):
    stem = row.url.rpartition("/")[2].removesuffix(".npz")
    parsed = registry.resolve(f"augreg/{stem}")
    assert parsed.name == f"augreg/{stem}"
    for field in ("url", "variant", "parameters", "num_classes", "resolution", "crop", "pretraining", "dataset"):
        assert getattr(parsed, field) == getattr(row, field), field
    assert parsed.config == row.config


def is_known(name):
    try:
        return registry.resolve(name) is not None
    except UnknownNameError:
        return False


def names(grammar, fields, **fixed):
    """All names of the grammar's fields, some of them fixed."""
    values = [(fixed[field],) if field in fixed else stems.AUGREG_FIELDS[field] for field in fields]
    return [grammar.format(*value) for value in itertools.product(*values)]


PRETRAINED = ("augreg/{}-{}-{}ep-lr_{}-aug_{}-wd_{}-do_{}-sd_{}", list(stems.AUGREG_FIELDS)[:8])
ADAPTED = ("--{}-steps_{}-lr_{}-res_{}", list(stems.AUGREG_FIELDS)[8:])


def test_as_many_augreg_names_as_files():
    """vit_jax_augreg.ipynb: 759 pre-trainings, 3 of them B/8's, and 68 fine-tunings of each, 34 a resolution."""
    others = [name for name in names(*PRETRAINED) if "/B_8-" not in name]
    assert sum(map(is_known, others)) == 756
    stem = names(*PRETRAINED, model="R_Ti_16")[0]
    assert sum(is_known(stem + adapted) for adapted in names(*ADAPTED)) == 0, "30 epochs of i1k"
    for model, count in (("R_Ti_16", 68), ("B_8", 34)):
        stem = f"augreg/{model}-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0"
        found = [stem + adapted for adapted in names(*ADAPTED) if is_known(stem + adapted)]
        assert len(found) == count
        for name in found:
            row = registry.resolve(f"{name}.npz")
            assert row.resolution == int(name[-3:]) and row.crop is None
            assert row.num_classes == stems.AUGREG_DATASETS[row.dataset.replace("imagenet1k", "imagenet2012")][1]


def test_every_vtab_name():
    grid = itertools.product(stems.VTAB_FIELDS["model"], range(3), stems.VTAB_TASKS)
    found = [registry.resolve(f"vtab/BiT-M-{model}-run{run}-{task}") for model, run, task in grid]
    assert len({row.url for row in found}) == 285
    # Section 3.3 of arXiv 1912.11370, and its footnote 1.
    sizes = {(row.variant == "R152x4", row.dataset in stems.SMALL_IMAGES): row.resolution for row in found}
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
        ("augreg/Ti_16", "of the form"),
        ("augreg/Ti_16-i21k-300ep-lr_0.001-aug_light3-wd_0.1-do_0.0-sd_0.0", "its aug is light3"),
        ("augreg/Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.1-do_0.1-sd_0.0", "do and sd are equal"),
        ("augreg/Ti_16-i1k-30ep-lr_0.001-aug_none-wd_0.1-do_0.0-sd_0.0", "for 300ep only"),
        ("augreg/B_8-i1k-300ep-lr_0.001-aug_none-wd_0.1-do_0.0-sd_0.0", "on i21k only"),
        (f"{AUGREG_B8}--kitti-steps_2k-lr_0.01-res_384", "with res_224 only"),
        (f"{AUGREG_B8}--kitti-steps_10k-lr_0.01-res_224", "kitti has steps_0k and steps_2k only"),
        (f"{AUGREG_B8}--imagenet2012-steps_20k-lr_0.001-res_224", "lr_0.01 and lr_0.03 only"),
        ("augreg/Ti_17-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0", "its model is Ti_17"),
        ("vtab/BiT-M-R50x1-run3-svhn", "its run is 3"),
        ("vtab/BiT-M-R50x1-run0-cats", "its task is cats"),
    ],
)
def test_unknown_names(name, says):
    with pytest.raises(UnknownNameError, match=says):
        registry.resolve(name)
