"""What only big_vision's files need: the names of its BiT."""

import re

from keras_vit.zoo.formats.faults import Fault

# models/bit_paper.py to the names of big_transfer: the inverse of its maybe_convert_big_transfer_format. A kernel of
# the head becomes one of a 1x1 convolution; norms' parameters lose their leading axes (1, 1, 1, c).
BIT_NAMES = (
    (r"root_block/conv_root/kernel", r"resnet/root_block/standardized_conv2d/kernel"),
    (r"(block\d+/unit\d+)/conv_proj/kernel", r"resnet/\1/a/proj/standardized_conv2d/kernel"),
    *(
        (rf"(block\d+/unit\d+)/{part}", rf"resnet/\1/{letter}/{name}")
        for i, letter in enumerate("abc", start=1)
        for part, name in (
            (f"conv{i}/kernel", "standardized_conv2d/kernel"),
            (f"gn{i}/scale", "group_norm/gamma"),
            (f"gn{i}/bias", "group_norm/beta"),
        )
    ),
    (r"norm-pre-head/scale", r"resnet/group_norm/gamma"),
    (r"norm-pre-head/bias", r"resnet/group_norm/beta"),
    (r"head/(kernel|bias)", r"resnet/head/conv2d/\1"),
)


def is_bit(tensors):
    return any(name.startswith("root_block/") for name in tensors)


def rename_bit(tensors):
    """(name, tensor) pairs of big_vision's BiT under big_transfer's names and in its shapes; others as they are.

    The model is big_transfer's too, which pads its root's max-pool with zeros; bit_paper.py pads with -inf.
    """
    for name, tensor in tensors.items():
        rows = ((pattern, replacement) for pattern, replacement in BIT_NAMES if re.fullmatch(pattern, name))
        pattern, replacement = next(rows, (None, None))
        yield (re.sub(pattern, replacement, name), reshape_bit(name, tensor)) if pattern else (name, tensor)


def reshape_bit(name, tensor):
    if name == "head/kernel":
        return tensor.reshape((1, 1, *tensor.shape))
    return tensor.reshape(tensor.shape[3:]) if tensor.shape[:3] == (1, 1, 1) and len(tensor.shape) == 4 else tensor


def require_second_version(tensors):
    """Refuses a ResNet whose norms follow its convolutions: the package has one under a Transformer alone."""
    if "conv_root/kernel" in tensors and "embedding/kernel" not in tensors:
        raise Fault(
            "is of big_vision's models/bit.py, a ResNet with a norm after each convolution; this package has "
            "BiT's, models/bit_paper.py, with the norm before it."
        )
