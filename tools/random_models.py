"""Models of timm and transformers with random weights, saved as their libraries save them, and what these compute."""

import contextlib
import logging
import math

import numpy as np

TORCHVISION = ("nms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d", "qnms")
DECLARED = []  # a library of torch takes its declarations along when it goes


def declare_operators():
    """Declares torchvision's operators where its build for another torch brings none.

    timm and transformers import torchvision, and its import fails where torch does not know them. No ViT calls one.
    """
    import torch

    if not DECLARED:
        DECLARED.append(torch.library.Library("torchvision", "FRAGMENT"))
        for name in (*TORCHVISION, *(f"_{name}_backward" for name in TORCHVISION)):
            with contextlib.suppress(RuntimeError):  # it is there
                DECLARED[0].define(f"{name}(Tensor a) -> Tensor")


def import_timm():
    declare_operators()
    import timm

    logging.getLogger("timm").setLevel(logging.ERROR)
    return timm


def import_transformers():
    declare_operators()
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


def randomize(model):
    """Draws every parameter anew, so that none is at an initial value that hides it, such as a bias of 0.

    Kernels keep the size of what goes through them, scales of norms are near 1, all else has a standard deviation of
    0.3: biases, LayerScale, class token, registers, positions.
    """
    import torch

    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if is_kernel(name, parameter):
                parameter.copy_(noise / math.sqrt(parameter[0].numel()))
            elif parameter.ndim == 1 and bool((parameter == 1).all()):
                parameter.copy_(1 + 0.1 * noise)
            elif parameter.ndim:
                parameter.copy_(0.3 * noise)
    return model.eval()


def is_kernel(name, parameter):
    """Whether it is the matrix of a product or convolution, rather than a table that is added or looked up."""
    is_table = any(part in name for part in ("position", "token", "class_embedding"))
    return parameter.ndim >= 2 and len(parameter) > 1 and not is_table


def draw_images(image_size, count=2, channels=3):
    """Images (n, h, w, channels) of multiples of 1/8, which compress well and lose nothing in float16."""
    values = np.random.default_rng(1).integers(-16, 17, (count, *image_size, channels))
    return (values / 8).astype("float32")


def run(call, images, dtype="float32"):
    """What a function of torch makes of images (n, h, w, channels) of that dtype, as float64."""
    import torch

    pixels = torch.from_numpy(images.transpose(0, 3, 1, 2).astype(dtype))
    with torch.no_grad():
        return call(pixels).double().numpy()


def save_timm(model, folder):
    """model.safetensors and config.json, as timm pushes them to the Hub."""
    import_timm().models.save_for_hf(model, folder, safe_serialization=True)
