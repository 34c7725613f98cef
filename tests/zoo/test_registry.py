"""The registry: its rows against published numbers, and what names stand for."""

import dataclasses
import fnmatch
import json
import pathlib
import re

import pytest
from safetensors.numpy import load_file, save_file

from keras_vit import zoo
from keras_vit.errors import CheckpointError, UnknownNameError
from keras_vit.models import build, cost
from keras_vit.models.preprocessing import Preprocessing
from keras_vit.models.variants import VARIANTS
from keras_vit.zoo.fetch import download
from keras_vit.zoo.names import listed_models, registry
from keras_vit.zoo.names.rows import LABEL_SETS, checkpoints, default_tag

# Parameters with 1,000 classes at 224 pixels: vit_jax/models_test.py. BiT's agree with timm's results-imagenet.csv,
# which has millions with two decimals. ViT-B/30's, at 240, follow from B/16's: other patches, 65 positions for 197.
PARAMETERS = {
    "ViT-Ti/16": 5_717_416,
    "ViT-S/14": 22_050_664 + (14**2 - 16**2) * 3 * 384 + (257 - 197) * 384,
    "ViT-S/16": 22_050_664,
    "ViT-S/32": 22_878_952,
    "ViT-B/8": 86_576_872,
    "ViT-B/14": 86_567_656 + (14**2 - 16**2) * 3 * 768 + (257 - 197) * 768,
    "ViT-B/16": 86_567_656,
    "ViT-B/30": 86_567_656 + (30**2 - 16**2) * 3 * 768 - (197 - 65) * 768,
    "ViT-B/32": 88_224_232,
    "ViT-L/14": 304_326_632 + (14**2 - 16**2) * 3 * 1024 + (257 - 197) * 1024,
    "ViT-So400m/14": 427_680_704 + 1000 * 1153,  # timm's vit_so400m_patch14_siglip_224, and a head
    # timm's vit_giant_patch14_dinov2 at 518 without its scales, vit_giantopt_patch16_siglip_256, and heads
    "ViT-g/14": 1_136_479_232 + (257 - 1370) * 1536 - 80 * 1536 + 1000 * 1537,
    "ViT-g-opt/16": 1_163_168_256 + (196 - 256) * 1536 + 1000 * 1537,
    "ViT-L/16": 304_326_632,
    "ViT-L/32": 306_535_400,
    "ViT-H/14": 632_045_800,
    "R+ViT-Ti/16": 6_337_704,
    "R26+ViT-S/32": 36_431_912,
    "R26+ViT-B/32": 101_383_976,
    "R50+ViT-B/16": 98_659_112,
    "R50+ViT-L/32": 328_994_856,
    "R50x1": 25_549_352,
    "R50x3": 217_319_080,
    "R101x1": 44_541_480,
    "R101x3": 387_934_888,
    "R152x2": 236_335_208,
    "R152x4": 936_533_224,
}
# Billions of multiply-adds: timm's benchmark-infer-amp-nchw-pt110-cu113-rtx3090.csv, which counts norms as well.
MULTIPLY_ADDS = {
    ("ViT-Ti/16", 224): 1.26,
    ("ViT-Ti/16", 384): 4.70,
    ("ViT-S/32", 384): 3.45,
    ("ViT-S/16", 384): 15.52,
    ("ViT-B/8", 224): 78.22,
    ("ViT-B/16", 224): 17.58,
    ("ViT-B/16", 384): 55.54,
    ("ViT-B/32", 384): 13.06,
    ("ViT-L/16", 384): 191.21,
    ("ViT-L/32", 384): 45.31,
    ("ViT-H/14", 224): 167.4,
    ("R+ViT-Ti/16", 384): 1.34,
    ("R26+ViT-S/32", 384): 10.43,
    ("R26+ViT-B/32", 224): 6.81,
    ("R50+ViT-B/16", 384): 67.43,
    ("R50+ViT-L/32", 384): 57.43,
    ("R50x1", 448): 16.62,
    ("R50x3", 448): 145.7,
    ("R101x1", 448): 31.65,
    ("R101x3", 448): 280.33,
    ("R152x2", 448): 184.99,
    ("R152x4", 480): 844.84,
}
# arXiv 2010.11929, Table 6: epochs of JFT's 303 million images, and exaFLOPs of the pre-training.
EXAFLOPS = {
    "ViT-B/32": (7, 55),
    "ViT-B/16": (7, 224),
    "ViT-L/32": (7, 196),
    "ViT-L/16": (14, 1567),
    "ViT-H/14": (14, 4262),
    "R50+ViT-B/32": (7, 106),
    "R50+ViT-B/16": (7, 274),
    "R50+ViT-L/32": (7, 246),
    "R50+ViT-L/16": (14, 1668),
}
# Parameters of the files of imagenet21k/, pre-logits and head of zeros included: the authors' listing over four bytes.
WITH_ZERO_HEAD = {
    "ViT-B/16": 103_186_515,
    "ViT-B/32": 104_843_091,
    "ViT-B/8": 103_195_731,
    "ViT-L/16": 326_740_307,
    "ViT-L/32": 328_949_075,
    "ViT-H/14": 660_385_363,
    "R26+ViT-B/32": 118_002_835,
    "R50+ViT-B/16": 115_277_971,
    "R50+ViT-L/32": 351_408_531,
}
ROWS = {row.name: row for row in checkpoints()}
# tests/zoo/test_shipped.py has those that come with the package.
PUBLIC = [row for row in checkpoints() if row.url.startswith("https://")]
FAMILY = {row.name: row for row in checkpoints() if row.url.startswith("hf://")}
# Parameters of timm's models of these files, in millions: its results-imagenet.csv, and `vit_*` without a head.
MILLIONS = {
    "ViT-B/32:clip-openai": 87.85,
    "ViT-L/14:clip-openai-336": 304.29,
    "ViT-B/16:siglip2": 92.88,
    "ViT-So400m/14:siglip-384": 428.23,
    "ViT-S/14:dinov2": 22.06,
    "ViT-g/14:dinov2-reg4": 1136.48,
    "ViT-g-opt/16:siglip2-256": 1163.17,
    "ViT-B/14:dinov2-reg4": 86.58,
    "ViT-S/16:dinov3": 21.60,
    "ViT-L/16:deit3-i21k": 304.37,
}


CLASSES = {
    "imagenet1k": 1000,
    "imagenet21k": 21843,
    "cifar10": 10,
    "oxford_flowers102": 102,
    "oxford_iiit_pet": 37,
    "food101": 101,
    "sun397": 397,
}


def with_head(row):
    """The configuration of all that the row's file holds."""
    return dataclasses.replace(row.config, num_classes=row.num_classes)


@pytest.mark.parametrize(("name", "count"), PARAMETERS.items())
def test_parameters(name, count):
    assert cost.count_parameters(VARIANTS[name].config) == count


def test_every_variant_with_weights_has_published_parameters():
    assert {row.variant for row in [*PUBLIC, *FAMILY.values()]} == set(PARAMETERS)


def test_rows_of_the_family():
    """What of the files is known, how they are fed, and what they are for."""
    assert len(FAMILY) == 25
    for name, row in FAMILY.items():
        assert registry.resolve(name) is row is registry.resolve(row.url), name
        page = re.sub("^hf://(.*)@(.*?)/", r"https://huggingface.co/\1/resolve/\2/", row.url)
        assert registry.resolve(page) is row, name
        zeros = 0 if row.config.head_bias else row.num_classes  # timm's bias of CLIP's projection, which has none
        assert row.parameters == cost.count_parameters(row.config) == row.bytes / 4 - zeros, name
        assert row.preprocessing.image_size == row.config.image_size and row.preprocessing.interpolation == "bicubic"
        assert row.source.startswith("arXiv") and row.licence in ("MIT", "Apache-2.0", "DINOv3 License")
        assert (row.licence == "DINOv3 License") == ("dinov3" in name) == ("terms" in (row.note or ""))
    assert {name: round(FAMILY[name].parameters / 1e6, 2) for name in MILLIONS} == MILLIONS
    assert FAMILY["ViT-So400m/14:siglip-384"].config.grid == (27, 27)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("ViT-S/14:dinov2", "vit_small_patch14_dinov2"),
        ("ViT-S/14:dinov2-reg4", "vit_small_patch14_reg4_dinov2"),
        ("ViT-S/16:dinov3", "vit_small_patch16_dinov3_qkvb"),
        ("ViT-S/16:deit3-i21k", "deit3_small_patch16_224"),
        ("ViT-B/32:clip-openai", "vit_base_patch32_clip_224"),
        ("ViT-B/16:siglip2", "vit_base_patch16_siglip_224"),
    ],
)
def test_a_row_of_the_family_loads_as_it_says(name, architecture, tmp_path, monkeypatch):
    """From a file with random weights that has timm's config.json, and no header of ours."""
    row, path = FAMILY[name], tmp_path / "model.safetensors"
    zoo.save(build(row.config), tmp_path / "described.safetensors")
    save_file(load_file(tmp_path / "described.safetensors"), path)
    said = {"input_size": [3, row.resolution, row.resolution]}
    (tmp_path / "config.json").write_text(json.dumps({"architecture": architecture, "pretrained_cfg": said}))
    monkeypatch.setattr(download, "fetch_with_companions", lambda checkpoint: path)
    model = zoo.load(name)
    assert model.config == row.config and model.preprocessing == row.preprocessing
    assert zoo.load(name, num_classes=3).output_shape == (None, 3)


@pytest.mark.parametrize(("name", "count"), WITH_ZERO_HEAD.items())
def test_parameters_of_files_with_a_zero_head(name, count):
    assert cost.count_parameters(with_head(ROWS[f"{name}:i21k"])) == count


@pytest.mark.parametrize(("case", "count"), MULTIPLY_ADDS.items())
def test_gflops_against_timm(case, count):
    name, size = case
    assert cost.count_flops(VARIANTS[name].config, (size, size)) / 1e9 == pytest.approx(2 * count, rel=0.03)


@pytest.mark.parametrize(("name", "run"), EXAFLOPS.items())
def test_gflops_against_the_paper(name, run):
    epochs, exaflops = run
    forward_and_backward = 3 * cost.count_flops(VARIANTS[name].config) / 1e9
    assert forward_and_backward * epochs * 303e6 / 1e9 == pytest.approx(exaflops, rel=0.025)


@pytest.mark.parametrize("name", ["ViT-Test/4", "R+ViT-Ti/16", "R50x1"])
def test_parameters_against_keras(name):
    assert zoo.load(name, weights=None).count_params() == cost.count_parameters(VARIANTS[name].config)


@pytest.mark.parametrize("row", PUBLIC, ids=lambda row: row.name)
def test_row(row):
    assert row.url.startswith("https://storage.googleapis.com/") and row.url.endswith(".npz") and "+" not in row.url
    assert row.parameters == cost.count_parameters(row.config)
    assert row.labels == (row.dataset if row.valid_head and row.dataset in LABEL_SETS else None)
    assert row.num_classes == CLASSES[row.dataset]
    assert row.preprocessing == Preprocessing(
        (row.resolution,) * 2, row.crop, row.interpolation, crop_mode=row.crop_mode
    )
    assert (row.accuracy is None) == (row.accuracy_source is None)
    assert row.source.startswith(("arXiv", "vision_transformer")) and row.licence == "Apache-2.0"
    assert registry.resolve(row.name) is row is registry.resolve(row.url)


@pytest.mark.parametrize("row", PUBLIC, ids=lambda row: row.name)
def test_bytes_of_row(row):
    ratio = row.bytes / (4 * cost.count_parameters(with_head(row)))
    if row.name == "ViT-S/16:sam":
        ratio /= 3  # weights and two slots of the optimizer
    assert ratio == 1 if row.bytes_source == "computed" else 1 < ratio < 1.001


def test_rows_are_unique():
    assert len(ROWS) == len({row.file or row.url for row in checkpoints()}) == len(checkpoints())


def test_heads_of_zeros_are_no_classifiers():
    zeros = [row for row in checkpoints() if "/imagenet21k/" in row.url]
    assert len(zeros) == 9
    for row in zeros:
        assert not row.valid_head and row.labels is None and row.config.num_classes == 0
        assert row.config.representation_size == row.config.hidden_size
        assert listed_models.info(row.name).num_classes == 0 and listed_models.info(row.name).dataset is None


def test_defaults():
    for name in PARAMETERS:
        rows = [row for row in checkpoints() if row.variant == name]
        default = registry.resolve(name)
        assert default in rows
        if any(row.labels == "imagenet1k" for row in rows):
            assert default.labels == "imagenet1k"
        assert listed_models.info(name).default and listed_models.info(name).tag == default.tag
    assert not any(default_tag(name) for name in set(VARIANTS) - {row.variant for row in checkpoints()})


def test_names_of_the_design():
    assert registry.resolve("ViT-L/16:augreg-i21k").num_classes == 21843
    assert registry.resolve("ViT-B/16:augreg-i21k").url.endswith(
        "augreg/B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0.npz"
    )
    assert registry.resolve("R50x1").url == "https://storage.googleapis.com/bit_models/BiT-M-R50x1-ILSVRC2012.npz"


# What the authors' code and papers say: big_vision's configs (load_and_eval, bit_i21k, bit_i1k, vit_i1k_gsam_no_aug,
# vit_s16_i1k, distill), section 3.3 of arXiv 1912.11370, section 3 of arXiv 2106.05237, the README of FlexiViT.
SAID = {
    "*:augreg-i21k": {"resolution": 224, "crop": 0.875},
    "*:gsam": {"crop": 0.875, "classifier": "gap"},
    "*:bit-[sm]": {"resolution": 224, "crop": 0.875},
    "R[!1]*:bit-m-in1k": {"resolution": 384, "crop": None, "accuracy": None},
    "R101*:bit-m-in1k": {"resolution": 384, "crop": None, "accuracy": None},
    "R152x2:bit-m-in1k": {"resolution": 384, "crop": None, "accuracy": None},
    "R152x4:bit-m-in1k": {"resolution": 480, "crop": None, "accuracy": 84.936},
    "R50x1:distill-*": {"pretraining": "imagenet1k"},
    "R152x2:distill-teacher-*": {"pretraining": "imagenet21k"},
    "R152x2:distill-teacher-*128": {"resolution": 128, "crop": 128 / 160},
    "R50x1:bit-m-cifar10": {"resolution": 128, "num_classes": 10},
    "ViT-S/16:plain-in1k-*": {
        **{"classifier": "gap", "representation_size": 384, "crop": 224 / 256, "position_embedding": "sincos2d"}
    },
    "*:flexivit-*i[n2]1k-*": {"classifier": "token", "resolution": 224, "position_interpolation": "bilinear"},
    # configs/proj/flexivit/i1k_deit3_distill.py: resize(272)|central_crop(240)
    "*:flexivit-in1k-*": {"crop": 0.882, "crop_mode": "squash"},
    "*:flexivit-baseline-*": {"classifier": "token", "resolution": 240, "num_classes": 21843},
}
# Top-1 of these very files: timm's results-imagenet.csv (of June 2021 for the first three), vit_jax_augreg.ipynb.
MEASURED = {
    "ViT-B/32:i21k-in1k-384": 81.652,
    "ViT-L/16:i21k-in1k-224": 83.062,
    "ViT-L/16:i21k-in1k-384": 85.158,
    "ViT-B/8": 85.578,
    "ViT-B/16:augreg-i21k-in1k-384-timm": 86.01,
    "ViT-L/16:augreg-i21k-in1k-384-timm": 87.096,
    "R50+ViT-L/32:augreg-i21k-in1k-384-timm": 86.188,
}


@pytest.mark.parametrize("pattern", SAID)
def test_what_the_authors_say(pattern):
    rows = [row for row in checkpoints() if fnmatch.fnmatchcase(row.name, pattern)]
    assert rows
    for row in rows:
        facts = {**vars(row.config), **vars(row)}
        assert {field: facts[field] for field in SAID[pattern]} == SAID[pattern], row.name


def test_the_authors_feed_every_file_alike():
    assert {(row.interpolation, tuple(row.mean)) for row in PUBLIC} == {("bilinear", (0.5, 0.5, 0.5))}


def test_flexivit_is_evaluated_at_240_of_a_square_of_272():
    found = registry.resolve("ViT-B/32:flexivit-in1k-90ep").preprocessing.adapt_to((240, 240), 3)
    assert found.size_before_crop(300, 500) == (272, 272)


def test_accuracies_are_of_the_very_files():
    assert {name: registry.resolve(name).accuracy for name in MEASURED} == MEASURED
    assert not any("not this file" in (row.accuracy_source or "") for row in checkpoints())


def test_addresses():
    assert registry.resolve("hf://timm/vit").url == "hf://timm/vit@main/model.safetensors"
    assert registry.resolve("hf://a/b@v1/c/d.npz").url == "hf://a/b@v1/c/d.npz"
    assert registry.resolve("https://example.org/x.npz").variant is None
    row = registry.resolve("gs://vit_models/imagenet21k+imagenet2012/R50+ViT-B_16.npz")
    assert row.name == "R50+ViT-B/16:i21k-in1k-384"
    stem = "Ti_16-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0--kitti-steps_0k-lr_0.001-res_224"
    assert registry.resolve(f"gs://vit_models/augreg/{stem}.npz").name == f"augreg/{stem}"
    with pytest.raises(UnknownNameError, match="only after loading"):
        listed_models.info("https://example.org/x.npz")


def test_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("mine.npz").touch()
    pathlib.Path("weights").touch()
    assert registry.resolve("mine.npz") == pathlib.Path("mine.npz")
    assert registry.resolve("weights") == pathlib.Path("weights")
    assert registry.resolve(tmp_path / "mine.npz") == tmp_path / "mine.npz"
    for missing in ("other.npz", "./other", tmp_path / "other"):
        with pytest.raises(CheckpointError, match=r"There is no (folder or )?file .*other(\.npz)?\. "):
            registry.resolve(missing)
