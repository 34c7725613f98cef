"""Which variable of a model each official tensor is: the rows of both layouts."""

import numpy as np

DENSE = {"kernel": "kernel", "bias": "bias"}
CONV = {"kernel": "kernel"}
NORM = {"scale": "gamma", "bias": "beta"}
BIT_NORM = {"gamma": "gamma", "beta": "beta"}
# The authors' files have the first alone; the others' names are ours (Appendix D.4).
POSITIONS_1D = {"pos_embedding": "embedding"}
POSITIONS_2D = {"row_embedding": "row_embedding", "column_embedding": "column_embedding"}
POSITIONS_RELATIVE = {"relative_embedding": "embedding"}


def official_variables(model):
    """{official name: (variable, shape in the file)} of a model; axial ones have names of this package's."""
    table = {}
    for prefix, layer, names, *shape in VARIABLES[model.config.checkpoint_names](model):
        for name, attribute in names.items():
            variable = getattr(layer, attribute)
            table[f"{prefix}/{name}".lstrip("/")] = (variable, shape[0][name] if shape else tuple(variable.shape))
    return table


def official_arrays(model):
    """{official name: array}, in the order and the shapes of the authors' files."""
    from keras import ops

    tensors = {}
    for name, (variable, shape) in official_variables(model).items():
        tensors[name] = np.asarray(ops.convert_to_numpy(variable), "float32").reshape(shape)
    return tensors


def vit_variables(model):
    """(prefix, layer, {name in the file: attribute of the layer}[, {name: shape in the file}])."""
    config = model.config
    if config.backbone:
        yield from backbone_variables(model)
    yield "embedding", model.get_layer("embedding"), DENSE
    if config.classifier == "token":
        yield "", model.get_layer("cls"), {"cls": "token"}
    yield from position_variables(model)
    for i in range(config.num_layers):
        yield from block_variables(f"Transformer/{config.block_name}_{i}", model.get_layer(f"encoderblock_{i}"), config)
    yield "Transformer/encoder_norm", model.get_layer("encoder_norm"), NORM
    if config.representation_size:
        yield "pre_logits", model.get_layer("pre_logits"), DENSE
    if config.num_classes:
        yield "head", model.get_layer("head"), DENSE


def position_variables(model):
    """Those that are added: posembed_input at the stem, posembed_0 and so on before blocks, or posembed_shared."""
    names = {"1d": POSITIONS_1D, "2d": POSITIONS_2D}.get(model.config.position_embedding, {})
    for layer in dict.fromkeys(model.config.position_layers):
        yield f"Transformer/{layer}", model.get_layer(layer), names


def block_variables(prefix, block, config):
    d, heads = config.hidden_size, config.num_heads
    attention = f"{prefix}/MultiHeadDotProductAttention_1"
    yield f"{prefix}/LayerNorm_0", block.attention_norm, NORM
    for name in ("query", "key", "value"):
        shape = {"kernel": (d, heads, d // heads), "bias": (heads, d // heads)}
        yield f"{attention}/{name}", getattr(block.attention, name), DENSE, shape
    yield f"{attention}/out", block.attention.out, DENSE, {"kernel": (heads, d // heads, d), "bias": (d,)}
    if config.position_embedding == "relative":
        yield attention, block.attention.relative, POSITIONS_RELATIVE
    yield f"{prefix}/LayerNorm_2", block.mlp_norm, NORM
    yield f"{prefix}/MlpBlock_3/Dense_0", block.mlp.hidden, DENSE
    yield f"{prefix}/MlpBlock_3/Dense_1", block.mlp.out, DENSE


def backbone_variables(model):
    yield "conv_root", model.get_layer("conv_root"), CONV
    yield "gn_root", model.get_layer("norm_root"), NORM
    for block, depth in enumerate(model.config.backbone.depths, start=1):
        for u in range(1, depth + 1):
            unit, prefix = model.get_layer(f"block{block}_unit{u}"), f"block{block}/unit{u}"
            for i in "123":
                yield f"{prefix}/conv{i}", getattr(unit, f"conv{i}"), CONV
                yield f"{prefix}/gn{i}", getattr(unit, f"norm{i}"), NORM
            if unit.shortcut is not None:
                yield f"{prefix}/conv_proj", unit.shortcut, CONV
                yield f"{prefix}/gn_proj", unit.shortcut_norm, NORM


def resnet_variables(model):
    yield "resnet/root_block/standardized_conv2d", model.get_layer("root_conv"), CONV
    for block, depth in enumerate(model.config.depths, start=1):
        for u in range(1, depth + 1):
            unit, prefix = model.get_layer(f"block{block}_unit{u:02d}"), f"resnet/block{block}/unit{u:02d}"
            for i, letter in enumerate("abc", start=1):
                yield f"{prefix}/{letter}/group_norm", getattr(unit, f"norm{i}"), BIT_NORM
                yield f"{prefix}/{letter}/standardized_conv2d", getattr(unit, f"conv{i}"), CONV
            if unit.shortcut is not None:
                yield f"{prefix}/a/proj/standardized_conv2d", unit.shortcut, CONV
    yield "resnet/group_norm", model.get_layer("group_norm"), BIT_NORM
    if model.config.num_classes:
        head = model.get_layer("head")
        yield "resnet/head/conv2d", head, DENSE, {"kernel": (1, 1, *head.kernel.shape), "bias": tuple(head.bias.shape)}


def axial_resnet_variables(model):
    yield "conv_root", model.get_layer("conv_root"), CONV
    yield "gn_root", model.get_layer("norm_root"), NORM
    for block, depth in enumerate(model.config.depths, start=1):
        for u in range(1, depth + 1):
            unit, prefix = model.get_layer(f"block{block}_unit{u}"), f"block{block}/unit{u}"
            for i in "13":
                yield f"{prefix}/conv{i}", getattr(unit, f"conv{i}"), CONV
                yield f"{prefix}/gn{i}", getattr(unit, f"norm{i}"), NORM
            for name in ("row_attention", "column_attention"):
                attention = getattr(unit, name)
                yield f"{prefix}/{name}", attention, {"relative_pos_emb": "relative_embedding"}
                yield f"{prefix}/{name}/qkv", attention.qkv, CONV
                yield f"{prefix}/{name}/gn_qkv", attention.qkv_norm, NORM
                yield f"{prefix}/{name}/gn_out", attention.out_norm, NORM
            if unit.shortcut is not None:
                yield f"{prefix}/conv_proj", unit.shortcut, CONV
                yield f"{prefix}/gn_proj", unit.shortcut_norm, NORM
    if model.config.num_classes:
        yield "head", model.get_layer("head"), DENSE


# For each `checkpoint_names` of a configuration.
VARIABLES = {
    "vit": vit_variables,
    "axial-vit": vit_variables,
    "bit": resnet_variables,
    "axial-resnet": axial_resnet_variables,
}
