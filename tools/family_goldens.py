"""The golden files of tests/golden/family/: tiny checkpoints of the family, and what their libraries make of images.

    python tools/family_goldens.py     # with timm and transformers

Each is a folder: model.safetensors (or .npz) and config.json as the library saves them, and io.npz with the outputs,
computed in float64, for the images of each size, "16x24", in images.npz. The first size is the checkpoint's own; for
the others the library resized its positions.
"""

import copy
import json
import re
from functools import partial
from pathlib import Path

import numpy as np
from random_models import draw_images, import_timm, import_transformers, randomize, run, save_timm
from transformers_models import answer

GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "family"
OTHER_SIZES = ((20, 12), (20, 28))
SMALL = {"patch_size": 4, "embed_dim": 12, "depth": 2, "num_heads": 3, "mlp_ratio": 20 / 12, "num_classes": 0}
ROTARY = SMALL | {"embed_dim": 16, "num_heads": 2, "mlp_ratio": 1.5}  # heads of 8: two periods of each axis
RECTANGLE = {"img_size": (16, 24)}
TIMM = {
    "timm_clip_quickgelu": ("vit_base_patch32_clip_quickgelu_224.openai", SMALL | RECTANGLE | {"num_classes": 5}),
    "timm_siglip": ("vit_base_patch16_siglip_224.webli", SMALL | RECTANGLE),
    "timm_dinov2": ("vit_small_patch14_dinov2.lvd142m", SMALL | {"img_size": 20}),
    "timm_dinov2_registers": ("vit_small_patch14_reg4_dinov2.lvd142m", SMALL | RECTANGLE),
    "timm_deit3": ("deit3_small_patch16_224.fb_in1k", SMALL | {"img_size": 16, "num_classes": 5}),
    "timm_sbb": ("vit_little_patch16_reg1_gap_256.sbb_in12k", SMALL | RECTANGLE),
    "timm_so150m": ("vit_so150m_patch16_reg4_gap_256.sbb_e250_in12k", SMALL | RECTANGLE),
    "timm_eva": ("eva_giant_patch14_224.clip_ft_in1k", SMALL | {"img_size": 16, "num_classes": 5}),
    "timm_dinov3": ("vit_small_patch16_dinov3.lvd1689m", ROTARY | RECTANGLE),
    "timm_dinov3_qkvb": ("vit_small_patch16_dinov3_qkvb.lvd1689m", ROTARY | {"img_size": 16}),
    "timm_dinov3_plus": ("vit_small_plus_patch16_dinov3_qkvb.lvd1689m", ROTARY | {"img_size": 16}),
}
TOWER = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "image_size": 16,
    "patch_size": 4,
}
TEXT = {
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "vocab_size": 32,
    "max_position_embeddings": 8,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
}
TEXTS = np.array([[0, 5, 9, 1, 1, 1, 1, 1], [0, 7, 30, 12, 6, 1, 1, 1], [0, 2, 2, 2, 17, 22, 8, 1]])
TEXT |= {"projection_size": TOWER["hidden_size"]}
DINO = TOWER | {"mlp_ratio": 2}


def write_io(folder, call, sizes, **more):
    """io.npz: under the name of each size, what `call(pixels)` makes of the images of that size in images.npz."""
    found = {f"{h}x{w}": run(call, draw_images((h, w), count=3), "float64") for h, w in sizes}
    np.savez_compressed(folder / "io.npz", **found, **more)


def write_images():
    """images.npz: three images of each size that a golden has outputs for."""
    paths = sorted(GOLDEN.glob("*/io.npz"))
    names = {name for path in paths for name in np.load(path).files if re.fullmatch(r"\d+x\d+", name)}
    images = {name: draw_images(tuple(map(int, name.split("x"))), count=3).astype("float16") for name in sorted(names)}
    np.savez_compressed(GOLDEN / "images.npz", **images)


def write_timm(name, architecture, arguments):
    """A checkpoint of timm; for another size a copy of the model resizes its own positions."""
    timm = import_timm()
    folder = GOLDEN / name
    model = randomize(timm.create_model(architecture, **arguments))
    save_timm(model, folder)
    model.double()

    def call(pixels):
        if tuple(pixels.shape[2:]) == tuple(model.patch_embed.img_size):
            return model(pixels)
        other = copy.deepcopy(model)
        other.set_input_size(img_size=tuple(pixels.shape[2:]))
        return other(pixels)

    size = tuple(int(side) for side in model.patch_embed.img_size)
    write_io(folder, call, (size, *OTHER_SIZES))


def build_transformers():
    """{name: (model, what it answers to pixels)} of transformers."""
    t = import_transformers()
    quick = {"hidden_act": "quick_gelu"}
    clip = t.CLIPConfig(vision_config=TOWER | quick, text_config=TEXT | quick, projection_dim=10)
    siglip = t.SiglipConfig(vision_config=TOWER | {"image_size": 18}, text_config=TEXT)
    registers = {"num_register_tokens": 4}
    rotary = TOWER | registers | {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
    classes = {"num_labels": 5}
    pair = t.SiglipConfig(vision_config=TOWER, text_config=TEXT, **classes)
    models = {
        "hf_deit": t.DeiTForImageClassification(t.DeiTConfig(**TOWER, **classes)),
        "hf_ijepa": t.IJepaForImageClassification(t.IJepaConfig(**TOWER, **classes)),
        "hf_siglip_classifier": t.SiglipForImageClassification(pair),
        "hf_clip_quickgelu": t.CLIPModel(clip),
        "hf_clip": t.CLIPVisionModelWithProjection(t.CLIPVisionConfig(**TOWER, hidden_act="gelu", projection_dim=10)),
        "hf_siglip": t.SiglipModel(siglip),
        "hf_dinov2": t.Dinov2Model(t.Dinov2Config(**DINO)),
        "hf_dinov2_classifier": t.Dinov2ForImageClassification(t.Dinov2Config(**DINO, num_labels=5)),
        "hf_dinov2_registers": t.Dinov2WithRegistersModel(t.Dinov2WithRegistersConfig(**DINO, **registers)),
        "hf_dinov2_giant": t.Dinov2Model(t.Dinov2Config(**DINO, use_swiglu_ffn=True)),
        "hf_dinov3": t.DINOv3ViTModel(t.DINOv3ViTConfig(**rotary)),
        "hf_dinov3_plus": t.DINOv3ViTModel(t.DINOv3ViTConfig(**rotary, use_gated_mlp=True, hidden_act="silu")),
    }
    return {name: randomize(model) for name, model in models.items()}


def write_transformers(name, model):
    """A checkpoint of transformers; DINO resizes positions always, the others where they are asked to."""
    folder = GOLDEN / name
    model.save_pretrained(folder)
    size = getattr(model.config, "vision_config", model.config).image_size
    is_asked = any(kind in type(model).__name__ for kind in ("CLIP", "Siglip", "DeiT", "IJepa"))
    call = partial(answer, model.double(), **({"interpolate_pos_encoding": True} if is_asked else {}))
    write_io(folder, call, ((size, size), *OTHER_SIZES), **compute_texts(model, size))


def compute_texts(model, size):
    """For a model of images and texts: the texts' vectors, scale, bias and logits of the images at their own size."""
    import torch

    if not hasattr(model, "text_model"):
        return {}
    pixels = torch.from_numpy(draw_images((size, size), count=3).transpose(0, 3, 1, 2).copy()).double()
    with torch.no_grad():
        found = model(input_ids=torch.from_numpy(TEXTS), pixel_values=pixels)
        bias = getattr(model, "logit_bias", None)
        return {
            "class_vectors": model.get_text_features(torch.from_numpy(TEXTS)).pooler_output.numpy(),
            "scale": model.logit_scale.exp().reshape(()).numpy(),
            "bias": (torch.zeros(()) if bias is None else bias).reshape(()).numpy(),
            "logits": found.logits_per_image.numpy(),
        }


def name_attention(place, thirds, out, heads):
    """The tensors of an attention under big_vision's names; `thirds` are (weight, bias) of query, key and value.

    JAX's kernels are (d, heads, d / heads) and biases (heads, d / heads), torch's (d, d) and (d,).
    """
    found = {}
    for part, (weight, bias) in zip(("query", "key", "value"), thirds, strict=True):
        found[f"{place}/{part}/kernel"] = weight.T.reshape(len(weight), heads, -1)
        found[f"{place}/{part}/bias"] = bias.reshape(heads, -1)
    weight, bias = out
    found[f"{place}/out/kernel"], found[f"{place}/out/bias"] = weight.T.reshape(heads, -1, len(weight)), bias
    return found


def name_mlp_and_norms(place, read, norms, mlp):
    """MLP and norms under big_vision's names: `norms` {its name: timm's}, `mlp` the path of timm's."""
    found = {}
    for theirs, ours in norms.items():
        found[f"{place}/{theirs}/scale"], found[f"{place}/{theirs}/bias"] = read(ours)
    for i in range(2):
        weight, bias = read(f"{mlp}.fc{i + 1}")
        found[f"{place}/MlpBlock_0/Dense_{i}/kernel"], found[f"{place}/MlpBlock_0/Dense_{i}/bias"] = weight.T, bias
    return found


def name_by_big_vision(state, heads, depth):
    """timm's state dict of a ViT under big_vision's names, without a prefix."""

    def read(path):
        return state[f"{path}.weight"], state[f"{path}.bias"]

    weight, bias = read("patch_embed.proj")
    found = {"embedding/kernel": weight.transpose(2, 3, 1, 0), "embedding/bias": bias}
    found["pos_embedding"] = state["pos_embed"]
    found |= {"cls": state["cls_token"]} if "cls_token" in state else {}
    for i in range(depth):
        place, block = f"Transformer/encoderblock_{i}", f"blocks.{i}"
        weights, biases = (np.split(part, 3) for part in read(f"{block}.attn.qkv"))
        attention = f"{place}/MultiHeadDotProductAttention_0"
        found |= name_attention(attention, zip(weights, biases, strict=True), read(f"{block}.attn.proj"), heads)
        norms = {"LayerNorm_0": f"{block}.norm1", "LayerNorm_1": f"{block}.norm2"}
        found |= name_mlp_and_norms(place, read, norms, f"{block}.mlp")
    found["Transformer/encoder_norm/scale"], found["Transformer/encoder_norm/bias"] = read("norm")
    if "head.weight" in state:
        found["head/kernel"], found["head/bias"] = state["head.weight"].T, state["head.bias"]
    if "attn_pool.latent" in state:
        place, (weight, bias) = "MAPHead_0", read("attn_pool.kv")
        thirds = [read("attn_pool.q"), *zip(np.split(weight, 2), np.split(bias, 2), strict=True)]
        found[f"{place}/probe"] = state["attn_pool.latent"]
        found |= name_attention(f"{place}/MultiHeadDotProductAttention_0", thirds, read("attn_pool.proj"), heads)
        found |= name_mlp_and_norms(place, read, {"LayerNorm_0": "attn_pool.norm"}, "attn_pool.mlp")
    return found


def stack_blocks(tensors, depth):
    """The blocks' tensors with an axis of depth in front, as scanned training leaves them."""
    first = "Transformer/encoderblock_0/"
    kept = {name: values for name, values in tensors.items() if "encoderblock_" not in name}
    for name in (name for name in tensors if name.startswith(first)):
        parts = [tensors[name.replace("encoderblock_0", f"encoderblock_{i}")] for i in range(depth)]
        kept[name.replace("encoderblock_0", "encoderblock")] = np.stack(parts)
    return kept


def write_big_vision(name, model, tensors):
    """model.npz in big_vision's names and what timm's model computes, which has the same parameters."""
    folder = GOLDEN / name
    folder.mkdir(exist_ok=True)
    np.savez(folder / "model.npz", **{f"params/{key}": np.ascontiguousarray(x) for key, x in tensors.items()})
    write_io(folder, model.double(), [(16, 16)])


def write_all_big_vision():
    """SigLIP, its blocks apart and stacked, beside a text tower's tensor; and a DeiT-III with a class token."""
    timm = import_timm()
    text = {"txt/head/bias": np.zeros(12, "float32"), "t": np.full(1, 2.0, "float32")}
    text |= {"b": np.full(1, -10.0, "float32")}
    square = SMALL | {"img_size": 16}
    model = randomize(timm.create_model("vit_so400m_patch16_siglip_256", **square))
    state = {key: values.numpy() for key, values in model.state_dict().items()}
    tensors = name_by_big_vision(state, 3, 2)
    for name, own in {"bv_siglip": tensors, "bv_siglip2": stack_blocks(tensors, 2)}.items():
        images = {f"img/{key}": values for key, values in own.items()}
        write_big_vision(name, model.float(), images | text)
    options = {"no_embed_class": True, "act_layer": "gelu_tanh"}
    model = randomize(timm.create_model("vit_base_patch16_224", **square | options | {"num_classes": 5}))
    state = {key: values.numpy() for key, values in model.state_dict().items()}
    write_big_vision("bv_deit3", model, name_by_big_vision(state, 3, 2))


def name_by_meta(state, registers, gated):
    """timm's state dict of a DINOv2 or DINOv3 under the names of Meta's own repositories."""
    swaps = {"reg_token": registers, "gamma_1": "ls1.gamma", "gamma_2": "ls2.gamma"}
    swaps |= {"mlp.fc1_g": "mlp.w1", "mlp.fc1_x": "mlp.w2", "mlp.fc2": "mlp.w3"} if gated == "apart" else {}
    swaps |= {"mlp.fc1": "mlp.w12", "mlp.fc2": "mlp.w3"} if gated == "packed" else {}
    renamed = {}
    for name, values in state.items():
        for old, new in swaps.items():
            name = name.replace(old, new)
        renamed[name] = values
    return renamed


def write_meta(name, architecture, arguments, registers, gated=None):
    """A checkpoint as Meta's repositories name it, read by timm's own conversion; no config.json says anything."""
    import torch
    from safetensors.torch import save_file

    timm = import_timm()
    model = randomize(timm.create_model(architecture, **arguments))
    width, is_rotary = model.embed_dim, type(model).__name__ == "Eva"
    state = name_by_meta(dict(model.state_dict()), registers, gated)
    if is_rotary:
        for i in range(len(model.blocks)):
            bias = [state.pop(f"blocks.{i}.attn.{part}_bias") for part in "qv"]
            state[f"blocks.{i}.attn.qkv.bias"] = torch.cat([bias[0], torch.zeros(width), bias[1]])
            state[f"blocks.{i}.attn.qkv.bias_mask"] = torch.cat(
                [torch.ones(width), torch.zeros(width), torch.ones(width)]
            )
        state["rope_embed.periods"] = 100.0 ** (torch.arange(0, 4, 2) / 4)
    elif registers in state:  # Meta's class token has a position, which timm adds to it
        position = 0.3 * torch.randn(1, 1, width, generator=torch.Generator().manual_seed(2))
        state["pos_embed"] = torch.cat([position, state["pos_embed"]], 1)
        state["cls_token"] = state["cls_token"] - position
    state["mask_token"] = torch.zeros(1, width)
    module = timm.models.eva if is_rotary else timm.models.vision_transformer
    model.load_state_dict(module.checkpoint_filter_fn(dict(state), model))
    model.reset_classifier(0, "token")  # Meta's models return the class token
    folder = GOLDEN / name
    folder.mkdir(exist_ok=True)
    save_file({key: values.contiguous() for key, values in state.items()}, folder / "model.safetensors")
    write_io(folder, model.double(), [(16, 16)])


def write_all_meta():
    square = {"img_size": 16}
    write_meta("meta_dinov2", "vit_small_patch14_dinov2", SMALL | square, "register_tokens")
    write_meta("meta_dinov2_registers", "vit_small_patch14_reg4_dinov2", SMALL | square, "register_tokens")
    giant = "vit_giant_patch14_reg4_dinov2"
    write_meta("meta_dinov2_giant", giant, SMALL | square, "register_tokens", "packed")
    write_meta("meta_dinov3", "vit_small_patch16_dinov3_qkvb", ROTARY | square, "storage_tokens")
    plus = "vit_small_plus_patch16_dinov3_qkvb"
    write_meta("meta_dinov3_plus", plus, ROTARY | square, "storage_tokens", "apart")


def tidy_config(path):
    """The config.json without the version and spaces, so that it changes when the model does."""
    stated = json.loads(path.read_text("utf-8"))
    stated.pop("transformers_version", None)
    path.write_text(json.dumps(stated) + "\n", "utf-8")


def main():
    GOLDEN.mkdir(exist_ok=True)
    for name, (architecture, arguments) in TIMM.items():
        write_timm(name, architecture, arguments)
    for name, model in build_transformers().items():
        write_transformers(name, model)
    write_all_big_vision()
    write_all_meta()
    for path in GOLDEN.glob("*/config.json"):
        tidy_config(path)
    write_images()
    print(f"{sum(path.stat().st_size for path in GOLDEN.rglob('*.*')):,} bytes")


if __name__ == "__main__":
    main()
