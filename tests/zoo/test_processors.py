"""What preprocessor_config.json states, against the pixels of transformers' own processors of Pillow."""

import importlib.util

import numpy as np
import pytest
from PIL import Image

from keras_vit.models import ViTConfig
from keras_vit.zoo.formats.torch.stated import from_transformers

if importlib.util.find_spec("transformers") is None:
    pytest.skip("transformers is not installed", allow_module_level=True)

import transformers

# Without an odd number of pixels to crop, of which transformers takes half rounded down, torchvision rounded to even.
SHAPES = ((300, 400), (431, 223), (64, 64), (224, 224), (100, 518))
RAW = {"do_rescale": False, "image_mean": [127.5] * 3, "image_std": [127.5] * 3}
CASES = [
    *((kind, fields) for kind in ("ViT", "CLIP", "Siglip", "DeiT", "Bit") for fields in ({}, {"resample": 2}, RAW)),
    ("ViT", {"resample": 1}),
    ("CLIP", {"do_normalize": False}),
    ("DeiT", {"size": {"height": 248, "width": 248}}),
    ("CLIP", {"do_center_crop": False, "size": {"height": 224, "width": 224}}),
    ("CLIP", {"size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}}),
    ("Bit", {"size": {"shortest_edge": 448}, "crop_size": {"height": 224, "width": 224}}),
]


def draw_photo(height, width):
    small = np.random.default_rng(height).integers(0, 256, (height // 6, width // 6, 3), "uint8")
    return np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))


@pytest.mark.parametrize(("kind", "fields"), CASES)
def test_pixels_are_the_processors(kind, fields):
    """Pillow rounds to whole levels after either axis; the package rounds nothing."""
    processor = getattr(transformers, f"{kind}ImageProcessorPil")(**fields)
    stated = {name: int(value) if name == "resample" else value for name, value in processor.to_dict().items()}
    stated |= {name: list(stated[name]) for name in ("image_mean", "image_std")}
    size = fields.get("crop_size", {}).get("height", 224)
    config = ViTConfig(image_size=size, patch_size=16, hidden_size=12, num_layers=1, num_heads=3, mlp_dim=8)
    preprocessing = from_transformers(stated, config)
    for photo in map(draw_photo, *zip(*SHAPES, strict=True)):
        expected = processor(images=photo, return_tensors="np")["pixel_values"][0].transpose(1, 2, 0)
        levels = 255 * np.array(preprocessing.std) * (np.asarray(preprocessing(photo[None]))[0] - expected)
        assert np.abs(levels).max() < 2.5 and np.abs(levels).mean() < 0.6, photo.shape
