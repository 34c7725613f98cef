"""scikit-learn's two photographs, and images as the contents of files."""

import functools
import io
import struct
import zlib

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_images


@functools.cache
def china():
    """Uint8 (427, 640, 3)."""
    return load_sample_images().images[0]


@functools.cache
def flower():
    """Uint8 (427, 640, 3)."""
    return load_sample_images().images[1]


def encode(image, kind="JPEG", **options):
    """The contents of a file of `kind`; of Pillow's image or of pixels, uint8 (h, w) or (h, w, c)."""
    file = io.BytesIO()
    image = Image.fromarray(image) if isinstance(image, np.ndarray) else image
    image.save(file, kind, **options)
    return file.getvalue()


def png_chunk(name, content):
    """A chunk of a PNG: its length, its name, its content and their checksum."""
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
