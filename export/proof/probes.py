"""Images for comparing artefact and model: parts of two photographs, and waves with a little noise."""

import contextlib
import itertools

import numpy as np

from keras_vit.errors import ExportError, MissingPackageError
from keras_vit.export.proof.bundled import has_shape


def scale_images(images, preprocessing):
    """Preprocesses uint8 images to float32 inputs of a model."""
    if preprocessing is None:
        return images.astype("float32") / 127.5 - 1
    return np.asarray(preprocessing(images), "float32")


def scale_probes(images, preprocessing):
    """Preprocesses images that already have the input's size, without resizing them to `preprocessing`'s size."""
    if preprocessing is None or images.shape[1:3] == tuple(preprocessing.image_size):
        return scale_images(images, preprocessing)
    return ((images / 255 - preprocessing.mean) / preprocessing.std).astype("float32")


def make_gradient(random, height, width):
    """Waves of random direction and colour with a little noise, uint8."""
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    waves = [np.sin(random.uniform(2, 12) * (y * np.cos(a) + x * np.sin(a))) for a in random.uniform(0, 6.3, 3)]
    image = np.stack(waves, axis=-1) * 110 + 128 + random.normal(0, 6, (height, width, 3))
    return np.clip(image, 0, 255).astype("uint8")


def generate_images(height, width, seed):
    """Yields endless uint8 images (height, width, 3): mostly parts of photographs, if scikit-learn is installed."""
    from PIL import Image

    random, sources = np.random.default_rng(seed), ()
    with contextlib.suppress(MissingPackageError):
        from sklearn.datasets import load_sample_images

        sources = load_sample_images().images  # two, (427, 640, 3)
    for i in itertools.count():
        if i % 4 == 3 or not sources:
            yield make_gradient(random, height, width)
            continue
        source = sources[i % len(sources)]
        side = int(random.uniform(0.4, 1.0) * min(source.shape[:2]))
        top, left = (random.integers(0, length - side + 1) for length in source.shape[:2])
        part = Image.fromarray(source[top : top + side, left : left + side])
        yield np.asarray(part.resize((width, height), Image.Resampling.BILINEAR))


def make_probe(shape, count, dtype, preprocessing):
    """`count` inputs (count, ...) for one input of a model: images in its range, or random numbers.

    >>> make_probe((None, 32, 32, 3), 4, "float32", None).shape
    (4, 32, 32, 3)
    """
    if len(shape) == 4 and shape[-1] in (1, 3, 4):
        images = np.stack(list(itertools.islice(generate_images(*shape[1:3], seed=0), count)))
        if shape[-1] != 3:
            images = np.repeat(images.mean(axis=-1, keepdims=True).astype("uint8"), shape[-1], axis=-1)
        return images if dtype == "uint8" else scale_probes(images, preprocessing if shape[-1] == 3 else None)
    random = np.random.default_rng(0)
    lengths = [length or 8 for length in shape[1:]]
    if np.issubdtype(np.dtype(dtype), np.integer):
        return random.integers(0, 2, (count, *lengths))
    return random.normal(0, 1, (count, *lengths))


def gather_images(images, count, inputs):
    """At most `count` images of an array, a list of arrays or an iterable of batches, as a list of arrays."""
    if hasattr(images, "shape"):
        return [np.asarray(images)[:count]]
    if isinstance(images, list | tuple) and len(images) == inputs and all(hasattr(x, "shape") for x in images):
        return [np.asarray(x)[:count] for x in images]
    batches, total = [], 0
    for batch in images:
        batch = batch[0] if isinstance(batch, tuple) else batch
        batch = [np.asarray(x) for x in (batch if isinstance(batch, list | tuple) else [batch])]
        batches.append(batch)
        total += len(batch[0])
        if total >= count:
            break
    if not batches:
        raise ExportError("images is empty. Pass an array, a tf.data.Dataset of batches, or None.")
    return [np.concatenate(column)[:count] for column in zip(*batches, strict=True)]


def choose_inputs(model, shapes, images, count, preprocessing):
    """Chooses a list with one array per input of the model, all with the same number of images.

    Args:
        images: None for probes; an array (n, h, w, c); a list of arrays for several inputs; or an iterable of batches
            such as a tf.data.Dataset, whose elements may be (inputs, labels). uint8 goes through `preprocessing`.

    Raises:
        ExportError: if `images` is empty or has another shape.
    """
    if images is None:
        arrays = [
            make_probe(shape, count, x.dtype, preprocessing) for shape, x in zip(shapes, model.inputs, strict=True)
        ]
    else:
        arrays = gather_images(images, count, len(shapes))
        arrays = [scale_images(x, preprocessing) if x.dtype == "uint8" and preprocessing else x for x in arrays]
        for array, shape in zip(arrays, shapes, strict=True):
            if not has_shape(array, shape) or not len(array):
                raise ExportError(
                    f"images must have the shape {shape} of the model's input. Received: shape {array.shape}."
                )
    return [array.astype(x.dtype) for array, x in zip(arrays, model.inputs, strict=True)]
