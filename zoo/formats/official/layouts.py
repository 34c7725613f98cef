"""The authors' checkpoint layouts, brought to one: names and shapes of the first, pre-Linen, release."""

import re

import numpy as np

from keras_vit.errors import CheckpointError
from keras_vit.zoo.formats.bounds import MOST_TENSORS
from keras_vit.zoo.formats.official import big_vision
from keras_vit.zoo.formats.tensors import gathered

# Where a file keeps the model, and what else it may hold: optimizer slots, the text tower of a two-tower model.
PREFIXES = (
    ("opt/target/", ("opt/state/",)),
    ("params/img/", ("params/txt/", "params/t", "params/b", "opt/")),
    ("params/", ("opt/",)),
    ("", ()),
)

# Linen counts the layers of a block per kind, pre-Linen all together.
LINEN = (
    (r"(encoderblock[_0-9]*)/LayerNorm_1/", r"\1/LayerNorm_2/"),
    (r"(encoderblock[_0-9]*)/MultiHeadDotProductAttention_0/", r"\1/MultiHeadDotProductAttention_1/"),
    (r"(encoderblock[_0-9]*)/MlpBlock_0/", r"\1/MlpBlock_3/"),
)


def canonical(path, tensors):
    """The tensors of an official file under pre-Linen names; ResNets under `resnet/`.

    Raises:
        CheckpointError: when the file is in none of the authors' layouts.
    """
    tensors = strip_prefix(path, tensors)
    if big_vision.is_bit(tensors):
        return gathered(path, big_vision.bit(tensors))
    if any(name.startswith("resnet/") for name in tensors):
        unnumbered = r"standardized_conv2d_\d+", "standardized_conv2d"
        return gathered(path, ((re.sub(*unnumbered, name), tensor) for name, tensor in tensors.items()))
    big_vision.require_second_version(path, tensors)
    if "embedding/kernel" not in tensors or not any(name.startswith("Transformer/") for name in tensors):
        raise CheckpointError(
            f"{path} is in none of the official layouts (ViT and hybrid: embedding/kernel and Transformer/...; "
            f"BiT: resnet/... or root_block/...). It starts with: {', '.join(list(tensors)[:4]) or 'nothing'}."
        )
    if any(name.startswith("MAPHead_0/") for name in tensors):
        raise CheckpointError(f"{path} pools by attention (MAPHead_0); models of the paper pool by token or gap.")
    tensors = unstack(path, tensors)
    computed = big_vision.computed_positions(tensors)
    stored = tensors if computed is None else {**tensors, "pos_embedding": computed}
    return squeeze_norms(join_position_embedding(path, rename_linen(path, stored)))


def strip_prefix(path, tensors):
    for prefix, beside in PREFIXES:
        if any(name.startswith(prefix) for name in tensors):
            kept = (
                (name.removeprefix(prefix), tensor)
                for name, tensor in tensors.items()
                if name.startswith(prefix) or not name.startswith(beside or "\0")
            )
            return gathered(path, kept)
    return tensors


def unstack(path, tensors):
    """big_vision may stack all blocks along a leading axis: encoderblock/... (layers, ...) to encoderblock_i/..."""
    stacked = "Transformer/encoderblock/"
    layers = [tensor.shape[:1] for name, tensor in tensors.items() if name.startswith(stacked)]
    if not layers:
        return tensors
    if len(set(layers)) > 1 or () in layers:
        raise CheckpointError(f"{path}: the stacked blocks differ in number. Received: {sorted(set(layers))}.")
    (count,) = layers[0]
    if not 0 < count * len(layers) <= MOST_TENSORS:
        raise CheckpointError(
            f"{path} stacks {len(layers):,} tensors of {count:,} blocks each; expected 1 to {MOST_TENSORS:,} in all."
        )
    return gathered(path, unstacked(tensors, stacked, count))


def unstacked(tensors, stacked, count):
    """(name, tensor) pairs, with the tensors under the prefix `stacked` as `count` each."""
    for name, tensor in tensors.items():
        if not name.startswith(stacked):
            yield name, tensor
            continue
        whole = tensor.shared(count)
        for i in range(count):
            part = whole.map(tensor.shape[1:], lambda values, i=i: values[i])
            yield f"Transformer/encoderblock_{i}/{name.removeprefix(stacked)}", part


def rename_linen(path, tensors):
    """Linen names to pre-Linen ones, where the file has Linen's."""
    if not any("/MlpBlock_0/" in name for name in tensors):
        return tensors
    return gathered(path, ((pre_linen(name), tensor) for name, tensor in tensors.items()))


def pre_linen(name):
    for pattern, replacement in LINEN:
        name = re.sub(pattern, replacement, name)
    return name


def join_position_embedding(path, tensors):
    """big_vision adds the class token after the position embeddings: its own embedding is zero there."""
    grid = tensors.get("pos_embedding")
    if grid is None:
        return tensors
    rest = [(name, tensor) for name, tensor in tensors.items() if name != "pos_embedding"]
    if "cls" in tensors and len(grid.shape) == 3:
        n, l, d = grid.shape
        grid = grid.map((n, 1 + l, d), prepend_zero)
    return gathered(path, [("Transformer/posembed_input/pos_embedding", grid), *rest])


def prepend_zero(embedding):
    return np.concatenate([np.zeros_like(embedding[:, :1]), embedding], axis=1)


def squeeze_norms(tensors):
    """Group norms of the hybrids are (1, 1, 1, c) in pre-Linen files, (c,) in Linen's."""
    return {
        name: tensor.reshape(tensor.shape[3:])
        if re.search(r"(^|/)gn\w+/", name) and tensor.shape[:3] == (1, 1, 1)
        else tensor
        for name, tensor in tensors.items()
    }
