"""What the files beside a torch checkpoint state is followed, or refused for its true reason."""

import json

import numpy as np
import pytest
from golden import GOLDEN, logits
from safetensors.numpy import load_file, save_file

from keras_vit import models, zoo
from keras_vit.errors import CheckpointError, PreprocessingError
from keras_vit.models import Preprocessing
from keras_vit.zoo.formats import open_checkpoint

SIZES = {"embed_dim": 16, "depth": 2, "patch_size": 4, "mlp_ratio": 2.0, "img_size": [8, 12], "num_classes": 3}
PLAIN = {"architecture": "vit_small_patch16_224", "model_args": {**SIZES, "num_heads": 4}}
# As timm's save_for_hf wrote them for the models of the golden file: architecture, arguments.
STATED = {
    "heads": ("vit_small_patch16_224", {"num_heads": 8}),
    "heads_by_name": ("vit_base_patch16_gap_224", {}),
    "tanh_by_name": ("vit_base_patch32_siglip_gap_256", {"num_heads": 2}),
    "tanh": ("vit_small_patch16_224", {"num_heads": 2, "act_layer": "gelu_tanh"}),
    "patch_positions": ("flexivit_small", {"num_heads": 2}),
    "epsilon_by_name": ("vit_base_patch16_clip_224", {"num_heads": 2, "pre_norm": False}),
}


def golden(*dropped):
    return {name: x for name, x in load_file(GOLDEN / "timm_stated.safetensors").items() if name not in dropped}


def beside(folder, state, config=None, processor=None):
    """A checkpoint in a folder of its own, with the JSON files given."""
    save_file({name: np.ascontiguousarray(x) for name, x in state.items()}, folder / "model.safetensors")
    for name, said in (("config.json", config), ("preprocessor_config.json", processor)):
        if said is not None:
            (folder / name).write_text(json.dumps(said))
    return folder / "model.safetensors"


@pytest.mark.parametrize("case", STATED)
def test_timms_arguments_are_followed(case, tmp_path):
    """Heads, activation, epsilon, pooling, positions and a grid of 2 x 3, by argument or by the architecture's name."""
    architecture, given = STATED[case]
    state = golden(*["cls_token"] * (case in ("heads_by_name", "tanh_by_name")))
    if "cls_token" not in state or case == "patch_positions":
        state["pos_embed"] = state["pos_embed"][:, 1:]
    config = {"architecture": architecture, "model_args": {**SIZES, **given}}
    with np.load(GOLDEN / "timm_stated.io.npz") as io:
        images, expected = io["images"], io[case]
    model = zoo.load(beside(tmp_path, state, config))
    assert model.config.grid == (2, 3)
    np.testing.assert_allclose(logits(model, images), expected, atol=1e-5)


def test_arguments_that_are_null_state_nothing(tmp_path):
    config = {**PLAIN, "model_args": {**PLAIN["model_args"], "reg_tokens": None, "pre_norm": None}}
    assert zoo.load(beside(tmp_path, golden(), config)).config.num_registers == 0


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"model_args": {"global_pool": "avg"}}, "a class token and global_pool='avg'"),
        ({"global_pool": "max"}, "a class token and global_pool='max'"),
        (
            {"architecture": "vit_base_patch16_siglip_gap_224"},
            "of another model beside it, which states hidden_size 768",
        ),
        ({"model_args": {"depth": 3}}, "of another model beside it, which states num_layers 3; the tensors have 2"),
        ({"model_args": {"num_classes": 1000}}, "of another model beside it, which states num_classes 1000"),
        ({"model_args": {"act_layer": "relu"}}, "act_layer='relu'"),
        ({"architecture": "vit_base_patch16_clip_quickgelu_224"}, "states pre_norm True; the tensors have False"),
        ({"model_args": {"reg_tokens": 4}}, "states num_registers 4; the tensors have 0"),
        ({"model_args": {"norm_layer": "rmsnorm"}}, "norm_layer='rmsnorm'"),
        ({"model_args": {"block_fn": "ParallelBlock"}}, "block_fn='ParallelBlock'"),
        ({"model_args": {"attn_layer": "diff"}}, "attn_layer='diff'"),
        ({"model_args": {"swa_window": 7}}, "argument swa_window=7"),
        ({"model_args": {"num_heads": None}, "architecture": "vit_of_tomorrow"}, "Pass num_heads="),
    ],
)
def test_timms_arguments_that_are_not_ours_are_refused(said, sentence, tmp_path):
    config = {**PLAIN, **said}
    config["model_args"] = (
        {} if "siglip" in config["architecture"] else {**PLAIN["model_args"], **said.get("model_args", {})}
    )
    with pytest.raises(CheckpointError, match=sentence):
        zoo.load(beside(tmp_path, golden(), config))


def test_an_unknown_architecture_is_a_warning(tmp_path, caplog):
    zoo.load(beside(tmp_path, golden(), PLAIN))
    assert not caplog.records
    zoo.load(beside(tmp_path, golden(), {**PLAIN, "architecture": "vit_of_tomorrow"}))
    assert "architecture 'vit_of_tomorrow'" in caplog.text and "exact GELU" in caplog.text


def test_arguments_that_change_nothing(tmp_path):
    """Rates of dropout, initial values, sizes that may change: all that does not touch the answer."""
    more = {
        "drop_path_rate": 0.1,
        "weight_init": "jax",
        "dynamic_img_size": True,
        "qk_norm": False,
        "init_values": None,
    }
    config = {**PLAIN, "model_args": {**PLAIN["model_args"], "num_heads": 8, **more}, "global_pool": "token"}
    with np.load(GOLDEN / "timm_stated.io.npz") as io:
        images, expected = io["images"], io["heads"]
    np.testing.assert_allclose(logits(zoo.load(beside(tmp_path, golden(), config)), images), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "shape", "reason"),
    [
        ("dist_token", (1, 1, 16), "distillation token"),
        ("blocks.1.attn.q_norm.weight", (4,), "normalizes queries and keys"),
        ("blocks.1.attn.rel_pos.relative_position_bias_table", (9, 4), "relative positions"),
        ("patch_embed.norm.weight", (16,), "norms inside"),
        ("norm.running_mean", (16,), "batch norms"),
    ],
)
def test_parts_of_other_models_are_the_reason_given(name, shape, reason, tmp_path):
    """By the tensors' names, whatever the number of position embeddings."""
    state = {**golden(), name: np.ones(shape, "float32")}
    state["pos_embed"] = np.zeros((1, 11, 16), "float32")
    with pytest.raises(CheckpointError, match=f"holds {name}: its model .*{reason}"):
        zoo.load(beside(tmp_path, state), num_heads=4)


@pytest.mark.parametrize(
    ("name", "shape", "missing"),
    [
        ("blocks.0.ls1.gamma", (16,), "Transformer/encoderblock_0/LayerScale_1/scale"),
        ("norm_pre.weight", (16,), "Transformer/pre_norm/bias"),
        ("attn_pool.latent", (1, 1, 16), "MAPHead_0/MultiHeadDotProductAttention_0/query/kernel"),
        ("blocks.0.mlp.fc1_g.weight", (32, 16), "Transformer/encoderblock_0/MlpBlock_3/Dense_gate/bias"),
    ],
)
def test_an_option_that_is_not_whole_is_missing(name, shape, missing, tmp_path):
    state = {**golden(), name: np.ones(shape, "float32")}
    with pytest.raises(CheckpointError, match=f"missing: .*{missing}"):
        zoo.load(beside(tmp_path, state), num_heads=4, image_size=(8, 12), activation="gelu")


def test_strange_tensors_come_before_the_heads(tmp_path):
    """Whoever then passes num_heads= would be told to no avail."""
    state = {**golden(), "blocks.0.attn.gating_param": np.ones(4, "float32")}
    with pytest.raises(CheckpointError, match=r"holds blocks.0.attn.gating_param, which no ViT"):
        zoo.load(beside(tmp_path, state))


def test_queries_without_a_bias(tmp_path):
    with pytest.raises(CheckpointError, match=r"not blocks.0.attn.qkv.bias: .*qkv_bias=False"):
        zoo.load(beside(tmp_path, golden("blocks.0.attn.qkv.bias")), num_heads=4)


@pytest.mark.parametrize(
    ("file", "said", "sentence"),
    [
        ("hf_vit", {"model_type": "dinov2"}, "model_type 'dinov2'"),
        ("hf_vit", {"hidden_act": "relu"}, "activation 'relu'"),
        ("hf_vit", {"hidden_size": 768}, "of another model beside it, which states hidden_size 768"),
        ("hf_bit", {"model_type": "bit", "global_padding": "same"}, "global_padding='same'"),
        ("hf_bit", {"model_type": "bit", "global_padding": "VALID"}, "global_padding='VALID'"),
        ("hf_bit", {"model_type": "bit", "embedding_dynamic_padding": True}, "embedding_dynamic_padding=True"),
        ("hf_bit", {"model_type": "bit", "num_groups": 16}, "num_groups=16"),
        ("hf_bit", {"model_type": "bit", "output_stride": 16}, "output_stride=16"),
        ("hf_bit", {"model_type": "bit", "hidden_act": "gelu"}, "hidden_act='gelu'"),
        ("timm_bit", {"architecture": "resnetv2_50x1_bit", "model_args": {"stem_type": "same"}}, "stem_type='same'"),
        ("timm_bit", {"architecture": "resnetv2_50d_gn"}, "stem_type='deep'"),
        ("timm_bit", {"architecture": "resnetv2_50x1_bit", "global_pool": "max"}, "global_pool='max'"),
    ],
)
def test_configurations_that_change_the_function_are_refused(file, said, sentence, tmp_path):
    state = load_file(GOLDEN / f"{file}.safetensors")
    heads = {"num_attention_heads": 4} if file == "hf_vit" else {}
    with pytest.raises(CheckpointError, match=sentence):
        zoo.load(beside(tmp_path, state, {**heads, **said}))


@pytest.mark.parametrize(("activation", "answer"), [("relu", None), ("tanh", 1), (None, 1)])
def test_a_poolers_activation(activation, answer, tmp_path):
    """transformers' ViTModel ends in a dense layer and tanh, or what pooler_act says."""
    state = {name: x for name, x in load_file(GOLDEN / "hf_vit.safetensors").items() if "classifier" not in name}
    state = {name.removeprefix("vit."): x for name, x in state.items()}
    state |= {"pooler.dense.weight": np.eye(64, dtype="float32"), "pooler.dense.bias": np.zeros(64, "float32")}
    config = {"num_attention_heads": 4} | ({"pooler_act": activation} if activation else {})
    path = beside(tmp_path, state, config)
    if answer is None:
        with pytest.raises(CheckpointError, match="pooler_act='relu'"):
            zoo.load(path)
    else:
        assert np.abs(logits(zoo.load(path), np.ones((1, 32, 32, 3)))).max() <= answer


def test_a_variants_heads_do_not_hold_against_the_files(tmp_path):
    """A ViT-Test/4 has 4 heads: one with 8 is another model, to be read by its path."""
    model = models.VisionTransformer(32, 4, 64, 4, 8, 128, num_classes=2)
    zoo.save(model, tmp_path / "eight.safetensors")
    state = load_file(tmp_path / "eight.safetensors")
    path = beside(
        tmp_path,
        state,
        {
            "architecture": "vit_tiny_patch16_224",
            "model_args": {"embed_dim": 64, "depth": 4, "patch_size": 4, "num_heads": 8},
        },
    )
    with pytest.raises(CheckpointError, match="num_heads is 8; ViT-Test/4 has 4"):
        zoo.load("ViT-Test/4", weights=path)
    assert open_checkpoint(path).config.num_heads == 8


IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
TIMM = {"input_size": [3, 8, 12], "crop_pct": 0.9, "interpolation": "bicubic", **IMAGENET}
HF = {"image_mean": IMAGENET["mean"], "image_std": IMAGENET["std"], "image_processor_type": "DeiTImageProcessor"}
SQUARES = {"size": {"height": 32, "width": 48}, "resample": 3}


def preprocessing(tmp_path, cfg=None, processor=None):
    config = {**PLAIN, **({} if cfg is None else {"pretrained_cfg": cfg})}
    return open_checkpoint(beside(tmp_path, golden(), config, processor)).preprocessing


@pytest.mark.parametrize(
    ("cfg", "fields"),
    [
        ({}, {}),
        ({"crop_mode": "squash", "crop_pct": 1.0}, {"crop_mode": "squash", "crop": 1.0}),
        ({"interpolation": "lanczos"}, {"interpolation": "lanczos3"}),
        ({"interpolation": "nearest"}, {"interpolation": "nearest"}),
        ({"mean": [0.4], "std": [0.5]}, {"mean": (0.4,) * 3, "std": (0.5,) * 3}),
        ({"crop_pct": None}, {"crop": 0.875}),
    ],
)
def test_the_input_that_timm_states(cfg, fields, tmp_path):
    expected = {"crop": 0.9, "interpolation": "bicubic", **{name: tuple(x) for name, x in IMAGENET.items()}, **fields}
    assert preprocessing(tmp_path, {**TIMM, **cfg}) == Preprocessing((8, 12), **expected)


@pytest.mark.parametrize(
    ("processor", "fields"),
    [
        (SQUARES, {"crop": 1.0}),
        ({"size": 32, "crop_size": 28, "do_center_crop": True, "resample": 3}, {"crop": 0.875}),
        (
            {"size": {"height": 32, "width": 32}, "crop_size": {"height": 28, "width": 28}, "do_center_crop": True},
            {"crop": 0.875, "interpolation": "bilinear"},
        ),
        (
            {"size": {"shortest_edge": 32}, "crop_size": 32, "do_center_crop": True, "resample": 1},
            {"crop": 1.0, "interpolation": "lanczos3", "crop_mode": "center"},
        ),
        ({**SQUARES, "do_normalize": False}, {"crop": 1.0, "mean": (0.0,) * 3, "std": (1.0,) * 3}),
        (
            {**SQUARES, "rescale_factor": 2 / 255, "image_mean": [1.0] * 3, "image_std": [1.0] * 3},
            {"crop": 1.0, "mean": (0.5,) * 3, "std": (0.5,) * 3},
        ),
        (
            {**SQUARES, "do_rescale": False, "image_mean": 127.5, "image_std": 51.0},
            {"crop": 1.0, "mean": (0.5,) * 3, "std": (0.2,) * 3},
        ),
    ],
)
def test_the_input_that_transformers_states(processor, fields, tmp_path):
    """Resized to both sides by Pillow's filters, unless shortest_edge is given; then cropped, rescaled, normalized."""
    expected = {
        "interpolation": "bicubic",
        "crop_mode": "squash",
        **{n: tuple(x) for n, x in IMAGENET.items()},
        **fields,
    }
    found = preprocessing(tmp_path, processor={**HF, **processor})
    for name, value in expected.items():
        np.testing.assert_equal(getattr(found, name), pytest.approx(value) if name in ("mean", "std") else value)


@pytest.mark.parametrize(
    ("cfg", "processor", "reason"),
    [
        (None, None, "no JSON file beside it that states its preprocessing"),
        ({**TIMM, "crop_mode": "border"}, None, "crop_mode 'border'"),
        ({**TIMM, "interpolation": "random"}, None, "resizes by 'random'"),
        ({**TIMM, "mean": [0.4, 0.5], "std": [0.4, 0.5]}, None, "takes 3 channels"),
        (None, {**HF, **SQUARES, "resample": 4}, "resizes by 4"),
        (None, {**HF, **SQUARES, "do_resize": False}, "do_resize false"),
        (None, {**HF, **SQUARES, "do_pad": True}, "the step do_pad"),
        (None, {**HF, "size": {"shortest_edge": 32}}, "any aspect"),
        (None, {**HF, "size": {"longest_edge": 32}}, "the size"),
        (None, {**HF, "size": 32, "crop_size": [28, 14], "do_center_crop": True}, "of another aspect"),
        (None, {**HF, "size": 28, "crop_size": 32, "do_center_crop": True}, "of another aspect"),
        (None, {**HF, "size": 32, "image_processor_type": "OtherImageProcessor"}, "prepared by Other"),
        (None, {"image_mean": [0.5] * 3, **SQUARES}, "image_std"),
    ],
)
def test_an_input_that_is_not_known_is_asked_for(cfg, processor, reason, tmp_path):
    assert reason in preprocessing(tmp_path, cfg, processor).unknown


@pytest.mark.parametrize("ending", [".npz", ".safetensors", ".keras", ".weights.h5"])
def test_an_unknown_input_stays_unknown(ending, tmp_path):
    zoo.save(zoo.load(beside(tmp_path, golden(), PLAIN)), tmp_path / f"mine{ending}")
    model = zoo.load(tmp_path / f"mine{ending}")
    with pytest.raises(PreprocessingError, match=r"model.safetensors has no JSON file.*pass preprocessing= to"):
        _ = model.preprocessing
    assert not hasattr(model, "preprocessing")  # as exports ask
    model.preprocessing = Preprocessing((8, 12))
    zoo.save(model, tmp_path / f"known{ending}")
    assert zoo.load(tmp_path / f"known{ending}").preprocessing == Preprocessing((8, 12))


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_exports_know_no_more(dtype, tmp_path):
    """The float32 form that is exported has no input either, not the paper's."""
    from keras_vit.export.preparation import prepare_model

    model = zoo.load(beside(tmp_path, golden(), PLAIN), dtype=dtype)
    assert not hasattr(prepare_model(model), "preprocessing")
    model.preprocessing = Preprocessing((8, 12), 0.9)
    assert prepare_model(model).preprocessing == Preprocessing((8, 12), 0.9)


def test_what_torch_files_of_ours_keep(tmp_path):
    """Function, numerics, input and classes come back; timm's names stay, whose header timm does not read."""
    fed = Preprocessing((16, 40), 0.9, "lanczos3", (0.4, 0.5, 0.6), (0.2, 0.3, 0.4), "squash")
    model = models.VisionTransformer((16, 40), 8, 12, 2, 3, 20, 3, preprocessing=fed, labels=("a", "b", "ü"))
    for variable in model.trainable_variables:
        variable.assign(np.random.default_rng(0).normal(size=variable.shape))
    zoo.save(model, tmp_path / "mine.safetensors")
    again = zoo.load(tmp_path / "mine.safetensors")
    images = np.random.default_rng(1).normal(size=(2, 16, 40, 3))
    np.testing.assert_array_equal(logits(again, images), logits(model, images))
    assert (again.config, again.preprocessing, again.labels) == (model.config, fed, ("a", "b", "ü"))
    assert "blocks.0.attn.qkv.weight" in load_file(tmp_path / "mine.safetensors")


@pytest.mark.parametrize("patches", [(2, 3), (3, 2), (1, 5), (4, 6)])
def test_grids_that_are_no_square(patches, tmp_path):
    """An official file's, of the image size given or of its aspect."""
    rows, columns = patches
    model = models.VisionTransformer((8 * rows, 8 * columns), 8, 12, 1, 3, 20, 4)
    for variable in model.trainable_variables:
        variable.assign(np.random.default_rng(0).normal(size=variable.shape))
    zoo.save(model, tmp_path / "described.npz")
    with np.load(tmp_path / "described.npz") as tensors:
        np.savez(tmp_path / "official.npz", **tensors)  # without the description
    images = np.random.default_rng(1).normal(size=(2, 8 * rows, 8 * columns, 3))
    again = zoo.load(tmp_path / "official.npz", image_size=(8 * rows, 8 * columns))
    np.testing.assert_array_equal(logits(again, images), logits(model, images))
    larger = (24 * rows, 24 * columns)
    assert zoo.load(tmp_path / "official.npz", image_size=larger).config.grid == (3 * rows, 3 * columns)
    with pytest.raises(CheckpointError, match=f"{rows * columns} position embeddings .*no square grid.* image_size="):
        zoo.load(tmp_path / "official.npz")
    with pytest.raises(CheckpointError, match="nor one of the aspect of"):
        zoo.load(tmp_path / "official.npz", image_size=64)


def test_a_bare_torch_file_of_a_rectangle(tmp_path):
    with np.load(GOLDEN / "timm_stated.io.npz") as io:
        images, expected = io["images"], io["heads"]
    model = zoo.load(beside(tmp_path, golden()), num_heads=8, image_size=(8, 12))
    np.testing.assert_allclose(logits(model, images), expected, atol=1e-5)


def test_positions_of_patches_alone_are_the_reason_given(tmp_path):
    """Without a config.json that says so, positions for 2 x 2 patches look as if one were the class token's."""
    state = {**golden(), "pos_embed": np.zeros((1, 4, 16), "float32")}
    with pytest.raises(CheckpointError, match="All 4 may be for patches and none for the class token"):
        zoo.load(beside(tmp_path, state), num_heads=4)


@pytest.mark.parametrize("value", [[1], {"a": 1}, 7, "x", True, float("nan")])
@pytest.mark.parametrize(
    "name", ["act_layer", "norm_layer", "num_heads", "img_size", "patch_size", "global_pool", "embed_dim", "drop_rate"]
)
def test_nonsense_in_a_config_is_refused_or_passed_over(name, value, tmp_path):
    path = beside(tmp_path, golden(), {**PLAIN, "model_args": {**PLAIN["model_args"], name: value}})
    try:
        open_checkpoint(path)
    except CheckpointError as error:
        assert str(path) in str(error)


def test_every_architecture_of_the_table_is_read():
    """Each row, as if config.json named it, is followed or refused in a sentence; no row has an unknown argument."""
    from keras_vit.zoo.formats.torch import timm_config

    followed = 0
    for name, row in timm_config.read_architectures().items():
        said = {"architecture": f"{name}.some_tag"}
        try:
            statement = timm_config.timm_bit if name.startswith("resnetv2") else timm_config.timm_vit
            statement = timm_config.timm_eva if "use_rot_pos_emb" in row else statement
            statement(said, {})
            followed += 1
        except CheckpointError as error:
            assert "the argument" not in str(error), (name, row)
    assert followed > 140
