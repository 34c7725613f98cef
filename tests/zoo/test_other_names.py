"""Names that other packages give: against timm's own table of architectures, which says what each of them is."""

import json
import re
from pathlib import Path

import pytest

from keras_vit.data.datasets.schemes import find_scheme
from keras_vit.errors import DataError, UnknownNameError
from keras_vit.models.config import ResNetConfig
from keras_vit.models.variants import VARIANTS
from keras_vit.zoo import info, load
from keras_vit.zoo.names.registry import exact_name, resolve
from keras_vit.zoo.names.rows import PublicCheckpoint

TABLE = Path(__file__).parents[2] / "zoo" / "formats" / "torch" / "timm_architectures.json"
ARCHITECTURES = json.loads(TABLE.read_text("utf-8"))["architectures"]
TIMM = [name for name, row in ARCHITECTURES.items() if isinstance(row, dict) and name.startswith(("vit_", "resnetv2_"))]
OURS = {name: exact_name(name) for name in TIMM if exact_name(name)}


@pytest.mark.parametrize("name", sorted(OURS))
def test_an_architecture_of_timm_is_of_the_same_shape_here(name):
    config, row = VARIANTS[OURS[name].partition(":")[0]].config, ARCHITECTURES[name]
    if isinstance(config, ResNetConfig):
        assert list(config.depths) == row["layers"]
    else:
        # timm's default, where the name's row does not say: its VisionTransformer's arguments.
        stated = (row.get("embed_dim", 768), row.get("depth", 12), row.get("num_heads", 12))
        assert (config.hidden_size, config.num_layers, config.num_heads) == stated
        assert config.pixels_per_token == (pixels_per_token(name, row),) * 2


def pixels_per_token(name, row):
    """R+ViT-Ti/16 is named by 16 and has 32, as patch 8 on a stem of stride 4."""
    if "_r" not in name:
        return row.get("patch_size", 16)
    return 32 if "_p8_" in name else int((re.search(r"_s(\d+)_", name) or [0, 16])[1])


def test_the_architectures_are_many():
    assert len(OURS) > 30
    assert not [name for name in OURS if any(word in name for word in ("clip", "dino", "siglip", "gap", "miil", "reg"))]


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("vit-b/16", "ViT-B/16"),
        ("ViT-b/16:augreg-i21k", "ViT-B/16:augreg-i21k"),
        ("vit_b_16", "ViT-B/16"),  # torchvision
        ("vit_l32", "ViT-L/32"),  # vit-keras
        ("B_16", "ViT-B/16"),  # the authors' files
        ("R50+ViT-B_16", "R50+ViT-B/16"),
        ("BiT-M-R101x3", "R101x3:bit-m"),
        ("vit_base_patch16_224", "ViT-B/16:augreg-i21k-in1k-224"),
        ("vit_base_patch16_224.orig_in21k_ft_in1k", "ViT-B/16:i21k-in1k-224"),
        ("vit_large_patch16_384.augreg_in21k_ft_in1k", "ViT-L/16:augreg-i21k-in1k-384-timm"),
        ("vit_base_patch16_224_imagenet21k", "ViT-B/16:i21k"),  # keras-hub
        ("vit_base_patch16_384_imagenet", "ViT-B/16:i21k-in1k-384"),
        ("resnetv2_50x1_bit.goog_distilled_in1k", "R50x1:distill-224"),
        ("vit_base_patch16_224.mae", "hf://timm/vit_base_patch16_224.mae"),
        ("vit_base_patch16_224.augreg2_in21k_ft_in1k", "hf://timm/vit_base_patch16_224.augreg2_in21k_ft_in1k"),
        ("google/vit-base-patch16-224", "hf://google/vit-base-patch16-224"),
    ],
)
def test_the_answer_is_a_name_that_is_known(name, exact):
    for ask in (info, resolve, load):
        with pytest.raises(UnknownNameError, match=f"Here it is called {exact.replace('+', '.')}[.]$"):
            ask(name)
    assert isinstance(resolve(exact), PublicCheckpoint)


@pytest.mark.parametrize("name", ["vit_giant_patch14_224", "vit_base_patch16_224_dino", "cat.jpg", "", "owner/repo"])
def test_a_name_that_nobody_knows(name):
    assert exact_name(name) is None


def test_a_variant_with_other_weights_is_named_too():
    with pytest.raises(UnknownNameError, match="Here it is called ViT-B/16"):
        load("vit_b16", weights=None)


def test_a_folder_is_named_as_a_dataset(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    with pytest.raises(DataError, match="Did you mean folder:photos"):
        find_scheme("photos")
