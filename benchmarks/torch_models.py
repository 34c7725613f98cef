"""timm's models in PyTorch, as functions that wait for their result. Imports torch when it is needed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

NAMES = {
    "ViT-Ti/16": "vit_tiny_patch16_224",
    "ViT-S/16": "vit_small_patch16_224",
    "ViT-B/16": "vit_base_patch16_224",
    "ViT-B/32": "vit_base_patch32_224",
    "ViT-L/16": "vit_large_patch16_224",
    "ViT-H/14": "vit_huge_patch14_224",
    "R26+ViT-S/32": "vit_small_r26_s32_224",
    "R50+ViT-B/16": "vit_base_r50_s16_224",
    "R50x1": "resnetv2_50x1_bit",
    "R101x1": "resnetv2_101x1_bit",
    "R152x2": "resnetv2_152x2_bit",
}
TORCH_PEERS = {"timm": False, "timm-compiled": True}  # whether torch.compile is applied


@dataclass(frozen=True)
class Place:
    """How a model runs: on "cpu" or "cuda", in a dtype policy of Keras, compiled, with checkpointing."""

    device: str = "cpu"
    precision: str = "float32"
    compiled: bool = False
    checkpointing: bool = False


def build_timm(name: str, image_size: int, place: Place):
    """timm's model of a variant, with random weights, where it runs."""
    import timm
    import torch

    arguments = {"img_size": image_size} if NAMES[name].startswith("vit") else {}
    model = timm.create_model(NAMES[name], pretrained=False, **arguments).to(place.device)
    if "mixed" not in place.precision:
        model = model.to(getattr(torch, place.precision))
    if place.checkpointing:
        model.set_grad_checkpointing()
    return torch.compile(model) if place.compiled else model


def to_torch(images, place):
    """Images (n, h, w, 3) as a tensor (n, 3, h, w) on the device."""
    import torch

    x = torch.tensor(images).permute(0, 3, 1, 2).contiguous().to(place.device)
    return x if "mixed" in place.precision else x.to(getattr(torch, place.precision))


def autocast(place):
    """The context of mixed precision; it does nothing in another one."""
    import torch

    mixed = place.precision.startswith("mixed_")
    dtype = getattr(torch, place.precision.removeprefix("mixed_")) if mixed else torch.bfloat16
    return torch.autocast(place.device, dtype, enabled=mixed)


def infer(name: str, image_size: int, data: Sequence[np.ndarray], place: Place) -> Callable[[], object]:
    import torch

    model, x = build_timm(name, image_size, place).eval(), to_torch(data[0], place)

    def run():
        with torch.inference_mode(), autocast(place):
            return model(x).float().cpu().numpy()

    return run


def train(name: str, image_size: int, data: Sequence[np.ndarray], place: Place) -> Callable[[], object]:
    """A step of SGD with momentum on a batch; in float16 the loss is scaled."""
    import torch

    model = build_timm(name, image_size, place).train()
    x, labels = to_torch(data[0], place), torch.tensor(data[1]).to(place.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    scaler = torch.amp.GradScaler(place.device, enabled=place.precision == "mixed_float16")

    def run():
        optimizer.zero_grad()
        with autocast(place):
            loss = torch.nn.functional.cross_entropy(model(x).float(), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.item()

    return run
