"""Makers of the rows of a layout: (template of torch's names, template of the official names, kind of tensor).

{i} counts blocks of the encoder, {b} and {u} the stages and units of a ResNet; `kinds` has the kinds.
"""

BLOCK = "Transformer/encoderblock_{i}"
ATTENTION = f"{BLOCK}/MultiHeadDotProductAttention_1"


def dense_rows(torch, official, kind="dense", bias="same"):
    return (f"{torch}.weight", f"{official}/kernel", kind), (f"{torch}.bias", f"{official}/bias", bias)


def norm_rows(torch, official, scale="scale", shift="bias"):
    return (f"{torch}.weight", f"{official}/{scale}", "same"), (f"{torch}.bias", f"{official}/{shift}", "same")


def conv_rows(torch, official):
    return ((f"{torch}.weight", f"{official}/kernel", "conv"),)


def bit_norm_rows(torch, official):
    return norm_rows(torch, official, "gamma", "beta")


def attention_rows(query, key, value, out):
    rows = [
        dense_rows(name, f"{ATTENTION}/{ours}", "into heads", "heads")
        for name, ours in zip((query, key, value), ("query", "key", "value"), strict=True)
    ]
    return *rows[0], *rows[1], *rows[2], *dense_rows(out, f"{ATTENTION}/out", "out of heads")


def backbone_rows(stem, unit):
    """Rows of a hybrid's ResNet: `stem` is (convolution, norm), `unit` the prefix of a unit."""
    ours = "block{b}/unit{u}"
    rows = [*conv_rows(stem[0], "conv_root"), *norm_rows(stem[1], "gn_root")]
    for i in "123":
        rows += [*conv_rows(f"{unit}.conv{i}", f"{ours}/conv{i}"), *norm_rows(f"{unit}.norm{i}", f"{ours}/gn{i}")]
    return (
        *rows,
        *conv_rows(f"{unit}.downsample.conv", f"{ours}/conv_proj"),
        *norm_rows(f"{unit}.downsample.norm", f"{ours}/gn_proj"),
    )


def resnet_rows(stem, unit, last, head):
    """Rows of BiT: `head` is the prefix of the last layer and the kind of its kernel."""
    ours = "resnet/block{b}/unit{u:02d}"
    rows = [*conv_rows(stem, "resnet/root_block/standardized_conv2d")]
    for i, letter in enumerate("abc", start=1):
        rows += conv_rows(f"{unit}.conv{i}", f"{ours}/{letter}/standardized_conv2d")
        rows += bit_norm_rows(f"{unit}.norm{i}", f"{ours}/{letter}/group_norm")
    rows += conv_rows(f"{unit}.downsample.conv", f"{ours}/a/proj/standardized_conv2d")
    return *rows, *bit_norm_rows(last, "resnet/group_norm"), *dense_rows(head[0], "resnet/head/conv2d", head[1])
