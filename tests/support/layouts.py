"""Writes the golden checkpoints again in the authors' other layouts, by hand: what the loader must undo."""

import numpy as np


def read(path):
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


def with_optimizer(tensors):
    """Flax' optimizer file: the model under opt/target/, its slots beside it."""
    slots = {f"opt/state/param_states/{name}/momentum": value for name, value in tensors.items()}
    return {**{f"opt/target/{name}": value for name, value in tensors.items()}, **slots, "opt/state/step": np.array(7)}


def linen(tensors):
    """Every kind of layer counted for itself; group norms as vectors."""
    result = {}
    for name, value in tensors.items():
        name = name.replace("LayerNorm_2", "LayerNorm_1").replace("Attention_1/", "Attention_0/")
        name = name.replace("MlpBlock_3", "MlpBlock_0")
        result[name] = value.reshape(-1) if "/gn" in name or name.startswith("gn_root") else value
    return result


def big_vision(tensors, prefix="params/"):
    """Position embeddings at the top, the class token's added to the token itself."""
    result = linen(tensors)
    positions = result.pop("Transformer/posembed_input/pos_embedding")
    if "cls" in result:
        result["cls"] = result["cls"] + positions[:, :1]
        positions = positions[:, 1:]
    result["pos_embedding"] = positions
    return {prefix + name: value for name, value in result.items()}


def two_towers(tensors):
    text = {"params/txt/Embed_0/embedding": np.zeros((4, 2), "float32"), "params/t": np.ones(1, "float32")}
    return {**big_vision(tensors, "params/img/"), **text}


def stacked(tensors):
    """All blocks along a leading axis."""
    result, blocks = {}, {}
    for name, value in big_vision(tensors).items():
        head, _, tail = name.partition("encoderblock_")
        if tail:
            i, _, rest = tail.partition("/")
            blocks.setdefault(f"{head}encoderblock/{rest}", {})[int(i)] = value
        else:
            result[name] = value
    return {**result, **{name: np.stack([b[i] for i in sorted(b)]) for name, b in blocks.items()}}


def bfloat16(tensors):
    """Two bytes a number, which numpy calls void; the values lose their last bits."""
    return {
        f"params/{name}": (np.ascontiguousarray(v, "float32").view("uint32") >> 16).astype("uint16").view("V2")
        for name, v in linen(tensors).items()
    }


def numbered_convolutions(tensors):
    """Some BiT files number their convolutions."""
    return {
        name.replace("standardized_conv2d", f"standardized_conv2d_{i}" if i % 2 else "standardized_conv2d"): value
        for i, (name, value) in enumerate(tensors.items())
    }


def big_vision_bit(tensors):
    """big_vision's own names of BiT (models/bit_paper.py); norms as (1, 1, 1, c), the head as a matrix."""
    result = {}
    for name, value in tensors.items():
        *path, kind = name.removeprefix("resnet/").split("/")
        if kind in ("gamma", "beta"):
            number = "abc".find(path[-2]) + 1 if len(path) > 1 else 0
            path = [*path[:-2], f"gn{number}"] if number else ["norm-pre-head"]
            kind, value = {"gamma": "scale", "beta": "bias"}[kind], value.reshape(1, 1, 1, -1)
        elif path[0] == "head":
            path, value = ["head"], value.reshape(value.shape[-2:] if kind == "kernel" else -1)
        elif path[0] == "root_block":
            path = ["root_block", "conv_root"]
        elif "proj" in path:
            path = [*path[:2], "conv_proj"]
        else:
            path = [*path[:2], f"conv{'abc'.index(path[2]) + 1}"]
        result["/".join(["params", *path, kind])] = value
    return result


def without_positions(tensors):
    """big_vision's file of a model whose positions are computed."""
    stored = {name: value for name, value in linen(tensors).items() if not name.endswith("pos_embedding")}
    return {f"params/{name}": value for name, value in stored.items()}
