"""CLIP, SigLIP, DINOv2, DINOv3 and DeiT-III: tiny checkpoints of their libraries, and what these compute for images.

tests/golden/README.md says how they were made.
"""

import dataclasses
import json

import numpy as np
import pytest
import random_models
from family_models import OPTIONS, made
from golden import GOLDEN, logits
from safetensors.numpy import load_file, save_file
from shaking import shaken
from slowness import slow_but

from keras_vit import models, zoo
from keras_vit.errors import CheckpointError, ConfigError
from keras_vit.masked_patches.model import MaskedPatchModel

FAMILY = GOLDEN / "family"
NAMES = sorted(path.parent.name for path in FAMILY.glob("*/io.npz"))
IMAGES = dict(np.load(FAMILY / "images.npz"))
# What Meta's files do not say, and no config.json beside them.
ASKED = {name: {"num_heads": 2 if "dinov3" in name else 3} for name in NAMES if name.startswith("meta")}
ASKED |= {name: {**asked, "image_size": 16} for name, asked in ASKED.items()}


def path_of(name):
    return next((FAMILY / name).glob("model.*"))


def load(name, **arguments):
    return zoo.load(path_of(name), **{**ASKED.get(name, {}), **arguments})


def expected(name):
    """{size: outputs}; the first is of the checkpoint's own size."""
    with np.load(FAMILY / name / "io.npz") as io:
        return {size: io[size] for size in io.files if size in IMAGES}


def distance(model, size, outputs):
    """The greatest difference from the outputs, by the largest of them."""
    return np.abs(logits(model, IMAGES[size].astype("float32")) - outputs).max() / np.abs(outputs).max()


@pytest.mark.slow
def test_outputs_are_the_libraries_own_at_every_size():
    """The class token or a mean or attention pooling, and positions resized as each library resizes them."""
    far = {}
    for name in NAMES:
        for size, outputs in expected(name).items():
            model = load(name, image_size=tuple(map(int, size.split("x"))))
            far[name, size] = distance(model, size, outputs)
    assert len(far) > 50
    assert not {case: value for case, value in far.items() if value > 1e-5}


@pytest.mark.parametrize("gated", [False, True])
def test_timms_eva_without_rotary_positions_is_read_as_it_was_written(gated, tmp_path):
    model, images = made("sbb", qkv_bias="qv", gated_mlp=gated)
    zoo.save(model, tmp_path / "model.safetensors")
    again = zoo.load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(logits(again, images), logits(model, images), atol=1e-5)
    assert again.config == model.config


@pytest.mark.slow
@pytest.mark.parametrize(
    "ending", slow_but([".npz", ".safetensors", ".keras", ".weights.h5"], ".safetensors", ".keras")
)
def test_files_of_ours_keep_every_option(ending, tmp_path):
    changed = []
    for name in NAMES:
        model = load(name)
        zoo.save(model, tmp_path / f"{name}{ending}")
        again = zoo.load(tmp_path / f"{name}{ending}")
        size, outputs = next(iter(expected(name).items()))
        # timm's class token with registers has no position: it is added to the token.
        same = again.config == model.config or (ending == ".safetensors" and model.config.num_registers)
        if not same or again._preprocessing != model._preprocessing or distance(again, size, outputs) > 1e-5:
            changed.append(name)
    assert not changed


def test_timms_names_are_written_as_timm_writes_them(tmp_path):
    """Tensor for tensor the file that timm itself saved."""
    for name in (name for name in NAMES if name.startswith("timm") and name != "timm_so150m"):  # registers have places
        zoo.save(load(name), tmp_path / f"{name}.safetensors")
        own, theirs = load_file(tmp_path / f"{name}.safetensors"), load_file(path_of(name))
        assert own.keys() == theirs.keys(), name
        for tensor, values in theirs.items():
            np.testing.assert_array_equal(own[tensor], values, err_msg=f"{name} {tensor}")


TRANSFORMERS = ("clip", "clip_quickgelu", "siglip", "dinov2", "dinov2_classifier", "dinov2_giant", "dinov2_registers")
TRANSFORMERS = [f"hf_{name}" for name in (*TRANSFORMERS, "dinov3", "dinov3_plus", "ijepa")]
OTHERWISE = ["hf_deit", "hf_siglip_classifier"]  # written otherwise, the latter as I-JEPA's, and computed alike


def test_transformers_names_are_written_as_transformers_writes_them(tmp_path):
    """Tensor for tensor of the image tower, but for the mask of pre-training; and config.json says the same."""
    for name in TRANSFORMERS:
        (folder := tmp_path / name).mkdir()
        zoo.save(load(name), folder / "model.safetensors", layout="transformers")
        own, theirs = load_file(folder / "model.safetensors"), load_file(path_of(name))
        theirs = {key: values for key, values in theirs.items() if not key.startswith(("text_", "logit_"))}
        assert own.keys() == theirs.keys(), name
        for tensor in own.keys() - {key for key in own if key.endswith("mask_token")}:
            np.testing.assert_array_equal(own[tensor], theirs[tensor], err_msg=f"{name} {tensor}")
        own, theirs = (json.loads((place / "config.json").read_text()) for place in (folder, FAMILY / name))
        theirs |= theirs.get("vision_config", {})
        same = set(own) & set(theirs) - {"architectures", "model_type", "projection_dim", "intermediate_size"}
        assert len(same) > 7 and not {key: own[key] for key in same if own[key] != theirs[key]}, name


def test_what_is_written_for_transformers_is_read_again(tmp_path):
    """Also a distillation token, and a class token without a position, to which transformers adds one."""
    fields = {"image_size": 16, "patch_size": 8, "hidden_size": 16, "num_layers": 1, "num_heads": 2, "mlp_dim": 32}
    for more in (
        {"num_registers": 1, "num_classes": 3},
        {"num_registers": 3, "layer_scale": 0.1, "num_classes": 0, "class_token_position": False},
    ):
        model = shaken(models.VisionTransformer(**fields, **more))
        zoo.save(model, tmp_path / "model.safetensors", layout="transformers")
        again = zoo.load(tmp_path / "model.safetensors")
        assert again.config == dataclasses.replace(model.config, class_token_position=True)
        images = np.random.default_rng(0).normal(size=(2, 16, 16, 3))
        np.testing.assert_allclose(logits(again, images), logits(model, images), atol=1e-6)


@pytest.mark.slow
def test_transformers_opens_its_files_and_computes_the_same(tmp_path):
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    transformers = random_models.import_transformers()
    zoo.save(
        made("dinov3", classifier="token", class_token=None, image_size=16, num_classes=0)[0], tmp_path / "x.keras"
    )
    zoo.save(made("siglip", classifier="gap", image_size=18)[0], tmp_path / "mean.keras")  # with a remainder
    zoo.save(load("hf_dinov2_registers"), tmp_path / "timm.safetensors")  # its class token has no position
    named = ((name, path_of(name)) for name in TRANSFORMERS + OTHERWISE)
    own = {"made": "x.keras", "mean": "mean.keras", "timm": "timm.safetensors"}
    for name, path in (*((name, tmp_path / file) for name, file in own.items()), *named):
        model = zoo.load(path)
        (folder := tmp_path / name).mkdir()
        zoo.save(model, folder / "model.safetensors", layout="transformers")
        (kind,) = json.loads((folder / "config.json").read_text())["architectures"]
        opened = getattr(transformers, kind).from_pretrained(folder).eval()
        base = kind.replace("ForImageClassification", "Model").replace("WithProjection", "")
        assert type(transformers.AutoModel.from_pretrained(folder)).__name__ == base
        images = np.random.default_rng(0).normal(size=(2, *model.config.image_size, 3)).astype("float32")
        with torch.no_grad():
            answer = opened(pixel_values=torch.from_numpy(images.transpose(0, 3, 1, 2).copy()))
        found = next(x for key in ("image_embeds", "logits", "pooler_output") if (x := answer.get(key)) is not None)
        np.testing.assert_allclose(logits(model, images), found.numpy(), atol=1e-5 * np.abs(found.numpy()).max())


def test_what_transformers_cannot_say_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    for option, sentence in {
        "zero-shot": "has no class that computes this model. The nearest is .*classifier is 'map', not 'gap'",
        "sbb": "norm_after_pool is True, not False",
        "clip": r"head_bias is False|image_size is .16, 24., not 'square'\. Save",  # the patches are square
    }.items():
        with pytest.raises(CheckpointError, match=sentence):
            zoo.save(made(option)[0], path, layout="transformers")
    resnet = models.ResNet(image_size=16, depths=(1,), width_factor=0.5, num_classes=2)
    with pytest.raises(CheckpointError, match="is for Vision Transformers"):
        zoo.save(resnet, path, layout="transformers")
    with pytest.raises(ConfigError, match="layout"):
        zoo.save(made("clip")[0], path, layout="keras")
    with pytest.raises(ConfigError, match="layout='timm' is for .safetensors files"):
        zoo.save(made("clip")[0], tmp_path / "model.npz", layout="timm")
    assert not list(tmp_path.iterdir())


def test_registers_and_projections_of_others_are_written_for_timm(tmp_path):
    """Registers have no positions there, nor the class token beside them; a head always has a bias."""
    zoo.save(load("hf_dinov2_registers"), tmp_path / "dino.safetensors")
    assert load_file(tmp_path / "dino.safetensors")["pos_embed"].shape == (1, 16, 12)
    zoo.save(load("hf_clip"), tmp_path / "clip.safetensors")
    state = load_file(tmp_path / "clip.safetensors")
    assert not state["head.bias"].any()
    save_file(state, tmp_path / "timm.safetensors")  # as timm writes it: without the description in the header
    config = zoo.load(tmp_path / "timm.safetensors", num_heads=2, activation="gelu").config
    assert (config.head_bias, config.num_classes) == (False, len(state["head.bias"]))


def test_a_tensor_without_a_name_in_timm_is_refused_by_name(tmp_path):
    with pytest.raises(CheckpointError, match="no model of timm has MAPHead_0/MlpBlock_0/Dense_gate/kernel"):
        zoo.save(made("siglip", gated_mlp=True)[0], tmp_path / "gated.safetensors")


def copied(name, folder, change, config=True):
    """The path of a copy of a golden checkpoint of torch, its tensors changed in place."""
    state = load_file(path_of(name))
    change(state)
    save_file(state, folder / "model.safetensors")
    if config:
        (folder / "config.json").write_text((FAMILY / name / "config.json").read_text())
    return folder / "model.safetensors"


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("hf_clip", lambda t: t.update(strange=np.ones(3, "float32")), "left over: strange"),
        ("hf_clip_quickgelu", lambda t: t.pop("vision_model.pre_layrnorm.bias"), "missing: Transformer/pre_norm/bias"),
        ("hf_siglip", lambda t: t.pop("vision_model.head.probe"), "vision_use_head=False"),
        ("hf_siglip", lambda t: t.pop("vision_model.head.attention.out_proj.bias"), "missing: MAPHead_0/.*out/bias"),
        ("hf_dinov2", lambda t: t.pop("encoder.layer.1.layer_scale1.lambda1"), "missing: .*_1/LayerScale_0/scale"),
        (
            "hf_dinov2",
            lambda t: t.pop("encoder.layer.0.attention.attention.key.bias"),
            r"not encoder.layer.0.*key.bias",
        ),
        ("hf_dinov3", lambda t: t.pop("layer.1.attention.q_proj.bias"), "missing: .*_1/.*query/bias"),
        ("timm_dinov3", lambda t: t.update(pos_embed=np.ones((1, 24, 16), "float32")), "left over: Transformer/posem"),
        ("timm_siglip", lambda t: t.pop("patch_embed.proj.bias"), "missing: embedding/bias"),
    ],
)
def test_strictness(name, change, sentence, tmp_path):
    with pytest.raises(CheckpointError, match=sentence):
        zoo.load(copied(name, tmp_path, change))


@pytest.mark.parametrize("name", ["hf_clip", "timm_clip_quickgelu"])
def test_an_activation_that_no_file_states_is_asked_for(name, tmp_path):
    """CLIP's towers have QuickGELU or GELU, and their tensors are the same."""
    path = copied(name, tmp_path, lambda tensors: None, config=False)
    given = {"num_heads": 3, "image_size": (16, 24) if "timm" in name else 16}
    with pytest.raises(CheckpointError, match="activation='quick_gelu' or activation='gelu'"):
        zoo.load(path, **given)
    size, outputs = next(iter(expected(name).items()))
    activation = "quick_gelu" if "quick" in name else "gelu"
    assert distance(zoo.load(path, **given, activation=activation), size, outputs) < 1e-5


@pytest.mark.parametrize(
    ("name", "said", "sentence"),
    [
        ("hf_dinov3", {"rope_theta": 10000.0}, "rope_theta=10000.0"),
        ("hf_dinov3", {"num_register_tokens": 2}, "states num_registers 2; the tensors have 4"),
        ("hf_dinov2", {"use_swiglu_ffn": True}, "use_swiglu_ffn=True"),
        ("hf_clip", {"model_type": "siglip2_vision_model"}, "model_type 'siglip2_vision_model'"),
        ("hf_clip", {"model_type": ["siglip2_vision_model"]}, "model_type \\['siglip2_vision_model'\\]"),
        ("hf_clip", {"hidden_act": "relu"}, "activation 'relu'"),
        ("timm_dinov3", {"architecture": "vit_base_patch16_rope_reg1_gap_256"}, "no? class_token|class_token=False"),
    ],
)
def test_a_config_that_makes_another_function_is_refused(name, said, sentence, tmp_path):
    path = copied(name, tmp_path, lambda tensors: None)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **said}))
    with pytest.raises(CheckpointError, match=sentence):
        zoo.load(path)


def test_a_new_head_and_another_classifier():
    """A projection without bias gives way to a head with one; attention pooling comes and goes."""
    for name in ("hf_clip", "hf_siglip", "timm_dinov3"):
        model = load(name, num_classes=7)
        assert model.output_shape == (None, 7) and model.config.head_bias
        assert not logits(model, np.ones((1, *model.config.image_size, 3), "float32")).any()
    averaged = load("hf_siglip", classifier="gap", num_classes=0)
    assert averaged.config.class_token is None and not averaged.config.has_class_token
    assert load("timm_deit3", classifier="map", num_classes=2).output_shape == (None, 2)
    with pytest.raises(ConfigError, match="pre_norm is True in the checkpoint"):
        load("hf_clip", pre_norm=False)
    with pytest.raises(ConfigError, match="layer_scale is None in the checkpoint"):
        load("hf_clip", layer_scale=0.1)


def test_pixels_that_fill_no_patch_are_not_read():
    """18 pixels hold four patches of 4: the last two of each side do not matter."""
    model = load("hf_siglip")
    assert model.config.image_size == (18, 18) and model.config.grid == (4, 4) and model.config.drop_remainder
    images = IMAGES["18x18"].astype("float32")
    other = images.copy()
    other[:, 16:], other[:, :, 16:] = 9, -9
    np.testing.assert_array_equal(logits(model, other), logits(model, images))


@pytest.mark.parametrize("option", OPTIONS)
def test_options_work_with_whatever_else_a_model_does(option):
    """Attention in blocks, attention maps, LoRA and the cost."""
    from keras_vit.training import enable_lora

    model, images = made(option)
    answer = logits(model, images)
    assert models.cost.count_parameters(model.config) == model.count_params()
    outputs, weights = model.with_attention(images)
    np.testing.assert_allclose(outputs, answer, atol=1e-5)
    patches = np.prod(model.config.grid) + model.config.prefix_tokens
    assert weights.shape == (2, 2, 3, patches, patches)
    for layer in model.layers:
        if hasattr(layer, "attention") and hasattr(layer.attention, "largest_whole"):
            layer.attention.largest_whole = 0
    np.testing.assert_allclose(logits(model, images), answer, atol=1e-5)
    enable_lora(model, 2)
    np.testing.assert_allclose(logits(model, images), answer, atol=1e-5)


@pytest.mark.parametrize("option", OPTIONS)
def test_exports_compute_the_same_and_fold_scales(option, tmp_path):
    """By this package's own emitters: by others, norms and GELU are many products. LayerScale is in the products."""
    import onnx

    from keras_vit import export

    model, _ = made(option, labels=("a", "b", "c"))
    assert export.convert(model, tmp_path / "model.onnx").max_abs_diff < 1e-5
    kinds = [node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node]
    # Two for QuickGELU and two for a gate, in each of two blocks. Two for a rotation, of queries and of
    # keys, and one for the root of their width, which the rotation parts from the product.
    assert kinds.count("Mul") == {"clip": 4, "siglip": 0, "zero-shot": 0, "dinov2": 4, "sbb": 0, "dinov3": 10}[option]


@pytest.mark.parametrize("option", ["clip", "dinov2", "dinov3"])
def test_masked_patches_and_features_leave_prefix_tokens_out(option):
    from keras_vit import inspection

    model, images = made(option, num_classes=0)
    found = inspection.features(model, images, layers=(0, -1), as_grid=True)
    assert found.shape == (2, 2, *model.config.grid, 24)
    weights = inspection.attention_weights(model, images)
    assert inspection.rollout(weights, model.config.grid, registers=model.config.num_registers).shape == (
        2,
        *model.config.grid,
    )
    masked = MaskedPatchModel(model)
    assert masked.output_shape[1:] == (masked.objective.count_corrupted((16, 24)), 512)
