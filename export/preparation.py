"""Prepares a model for export: functional, built, float32, with the input shapes of its artefact.

It is compared on images of the user's, or on probes: parts of two photographs, and waves with a little noise.
"""

import contextlib
import dataclasses
import itertools
import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from keras_vit.errors import COUNT, ExportError, KerasVitError, MissingPackageError
from keras_vit.export.description import describe_model
from keras_vit.export.proof.bundled import has_shape
from keras_vit.files import find_advice
from keras_vit.lora import without_lora

TRACING = threading.RLock()  # one thread at a time: layers and Keras' functions are changed while a model is traced
SURROGATES = re.compile("[\ud800-\udfff]")  # Python has these in file names that are not UTF-8


def prepare_model(model: keras.Model) -> keras.Model:
    """`model` as a functional float32 model with the same weights; the model itself if it already is one."""
    if not isinstance(model, keras.Model):
        raise ExportError(f"Only a keras.Model can be exported. Received: {type(model).__name__}.")
    if not model.built:
        raise ExportError(f"The model {model.name!r} is not built: call it on a batch of images first, then export it.")
    source = without_lora(as_functional(model))
    # `model.layers` has only the outermost layers, and Keras has no public way to the inner ones.
    dtypes = [x.dtype for x in source.inputs if keras.backend.is_float_dtype(x.dtype)]
    if {*dtypes, *(layer.compute_dtype for layer in source._flatten_layers())} != {"float32"}:
        source = rebuild_in_float32(source)
    if source is not model and hasattr(model, "preprocessing"):
        source.preprocessing = model.preprocessing
    labels = getattr(model, "labels", None)
    source.labels = None if labels is None else tuple(labels)
    require_labels(source.labels or (), [x.shape[-1] for x in source.outputs])
    require_numbers(source)
    return source


def require_numbers(model):
    """Raises an ExportError for inputs of text, and for a preprocessing whose floats the model does not take."""
    for x in model.inputs:
        if x.dtype == "string":
            raise ExportError(
                f"The input {x.name!r} takes text, but exported files take numbers. Export the part of the model after "
                "its lookup."
            )
        if getattr(model, "preprocessing", None) is not None and not keras.backend.is_float_dtype(x.dtype):
            raise ExportError(
                f"The input {x.name!r} takes {x.dtype}, but model.preprocessing makes floats. Set it to None, or "
                "export a model of floats."
            )


def require_labels(labels, classes):
    """Raises an ExportError unless the first output has as many `classes` as names, and UTF-8 can encode these, since
    every format stores them so.
    """
    if len(labels) and len(labels) != classes[0]:
        advice = "" if len(classes) == 1 else ", or make the logits the first output"
        raise ExportError(f"model.labels has {len(labels)} names for {classes[0]} classes. Set model.labels{advice}.")
    for i, name in enumerate(labels):
        if not isinstance(name, str) or SURROGATES.search(name):
            raise ExportError(
                f"The name of class {i} must be text that UTF-8 can encode. Received: {name!r}. Set model.labels."
            )


def as_functional(model):
    """Calls a subclassed model on symbolic inputs of the shapes it was built with; a functional one is unchanged."""
    if isinstance(model, keras.Sequential):
        # A Sequential model has no `input` structure of its own; the functional model inside it has.
        return model._functional
    if getattr(model, "inputs", None):
        return model
    # Keras keeps the shapes of `build` only for its own files.
    shapes = list((getattr(model, "_build_shapes_dict", None) or {}).values())
    if len(shapes) != 1 or not isinstance(shapes[0], tuple):
        raise ExportError(
            f"The inputs of the subclassed model {model.name!r} are not known. Wrap it: "
            "x = keras.Input(shape); keras.Model(x, model(x))."
        )
    x = keras.Input(shapes[0][1:], name="images")
    return keras.Model(x, model(x, training=False), name=model.name)


def rebuild_in_float32(model):
    """Rebuilds a model from its configuration, with every layer in float32 and the same weights."""
    try:
        config = replace_dtypes(keras.saving.serialize_keras_object(model))
        twin = keras.saving.deserialize_keras_object(config)
        twin.set_weights(model.get_weights())
    except Exception as error:
        raise ExportError(
            f"The model {model.name!r} computes in {model.dtype_policy.name} and cannot be rebuilt in float32: "
            f"{str(error).strip().splitlines()[0]} Build it with dtype='float32', set_weights, and export that."
        ) from error
    return twin


def replace_dtypes(config):
    """A serialized model with every data type policy replaced."""
    if isinstance(config, dict):
        if config.get("class_name") == "DTypePolicy":
            return {**config, "config": {"name": "float32"}}
        return {key: replace_dtypes(value) for key, value in config.items()}
    if isinstance(config, list | tuple):
        return type(config)(replace_dtypes(value) for value in config)
    return "float32" if config in ("mixed_bfloat16", "mixed_float16", "bfloat16", "float16", "float64") else config


def pack_inputs(model, inputs):
    """Packs a flat list of tensors into the model's input structure: a tensor, a list or a dictionary."""
    return keras.tree.pack_sequence_as(model.input, list(inputs))


@contextlib.contextmanager
def replaced(owner, **attributes):
    """A context in which a module or class has other functions."""
    own = {name: vars(owner).get(name) for name in attributes}
    for name, value in attributes.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in own.items():
            delattr(owner, name) if value is None else setattr(owner, name, value)


@contextlib.contextmanager
def follow_export_calls(model):
    """A context in which `export_call` replaces `call` in every layer that has it."""
    # Layers inside layers, too; Keras has no public way to list them.
    layers = [layer for layer in model._flatten_layers() if hasattr(layer, "export_call")]
    for layer in layers:
        vars(layer)["call"] = layer.export_call
    try:
        yield
    finally:
        for layer in layers:
            del vars(layer)["call"]


def scales_pixels(model):
    """Whether a layer of the model divides pixels by 127.5 or 255, as in EfficientNet, or subtracts a mean above 1: it
    takes those from 0 to 255."""
    for layer in model._flatten_layers():  # also inside layers, as above
        if isinstance(layer, keras.layers.Rescaling) and np.max(layer.scale) < 0.01:
            return True
        if isinstance(layer, keras.layers.Normalization) and np.max(layer.mean) > 1:
            return True
    return False


def scale_probes(images, preprocessing):
    """Preprocesses images that already have the input's size, without resizing them to `preprocessing`'s size."""
    if preprocessing is None:
        return images.astype("float32") / 127.5 - 1
    if not hasattr(preprocessing, "image_size"):
        raise ExportError("The model's preprocessing does not say its image_size. Pass images=, already preprocessed.")
    if images.shape[1:3] == tuple(preprocessing.image_size):
        return np.asarray(preprocessing(images), "float32")
    return ((images / 255 - preprocessing.mean) / preprocessing.std).astype("float32")


def make_waves(random, height, width):
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
            yield make_waves(random, height, width)
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
        fits = shape[-1] == 3 or np.size(getattr(preprocessing, "mean", ())) in (1, shape[-1])
        return images if dtype == "uint8" else scale_probes(images, preprocessing if fits else None)
    random = np.random.default_rng(0)
    lengths = [length or 8 for length in shape[1:]]
    if np.issubdtype(np.dtype(dtype), np.integer):
        return random.integers(0, 2, (count, *lengths))
    return random.normal(0, 1, (count, *lengths))


def gather_images(images, count, inputs):
    """At most `count` images of an array, a list or dictionary of arrays or an iterable of batches, as a list of
    arrays.
    """
    listed = isinstance(images, list | tuple) and len(images) == inputs and all(hasattr(x, "shape") for x in images)
    if listed or isinstance(images, dict) or hasattr(images, "shape"):
        return [np.asarray(x)[:count] for x in keras.tree.flatten(images)]
    batches, total = [], 0
    for batch in images:
        batch = batch[0] if isinstance(batch, tuple) else batch
        batch = [np.asarray(x) for x in keras.tree.flatten(batch)]
        batches.append(batch)
        total += len(batch[0])
        if total >= count:
            break
    if not batches:
        raise ExportError("images is empty. Pass an array, a tf.data.Dataset of batches, or None.")
    return [np.concatenate(column)[:count] for column in zip(*batches, strict=True)]


@dataclass(frozen=True)
class Source:
    """A model, prepared once for all its artefacts, with the options that they share.

    Args:
        model: the user's model.
        functional: its prepared form, see `prepare_model`.
        images, image_size, batch_size, metadata: see `convert`.
    """

    model: keras.Model
    functional: keras.Model
    images: np.ndarray | Iterable[Any] | None = None
    image_size: int | tuple[int, int] | None = None
    batch_size: int | None = None
    metadata: dict[str, Any] | None = None

    @property
    def preprocessing(self):
        """The model's own, to the artefact's size."""
        own: Any = getattr(self.model, "preprocessing", None)
        has_size = dataclasses.is_dataclass(own) and hasattr(own, "image_size")
        if self.image_size is None or not has_size:
            return own
        sizes = [shape[1:3] for shape in self.choose_shapes() if len(shape) == 4]
        return dataclasses.replace(own, image_size=sizes[0]) if sizes else own

    def choose_shapes(self, free_size=True):
        """The shape of each input in an artefact; None for a free batch, and height or width if these can be free."""
        return [self.choose_shape(tuple(x.shape), free_size) for x in self.functional.inputs]

    def choose_shape(self, shape, free_size):
        if len(shape) != 4:
            return shape
        size: Any = self.image_size
        if size is not None:
            size = (size, size) if size in COUNT else size
            fits = isinstance(size, list | tuple) and len(size) == 2 and all(n in COUNT for n in size)
            if not fits or any(own not in (None, wanted) for own, wanted in zip(shape[1:3], size, strict=True)):
                known = "any size" if None in shape[1:3] else f"{shape[1]}x{shape[2]}"
                raise ExportError(f"The model takes images of {known}. Received: image_size={size!r}.")
            size = map(int, size)
        elif None not in shape[1:3] or free_size:
            return shape
        else:
            size = getattr(self.preprocessing, "image_size", None)
            if size is None:
                raise ExportError(
                    f"The model {self.model.name!r} takes images of any size. Pass image_size=(height, width)."
                )
        return (shape[0], *size, shape[3])

    def choose_inputs(self, shapes, count):
        """An array of at most `count` images for each input; their size, if free, is the model's own, or 224."""
        size = getattr(self.preprocessing, "image_size", None) or (224, 224)
        shapes = [
            (shape[0], *(n or m for n, m in zip(shape[1:3], size, strict=True)), shape[3]) if len(shape) == 4 else shape
            for shape in shapes
        ]
        inputs, preprocessing = self.functional.inputs, self.preprocessing
        if self.images is None:
            raw = preprocessing is None and scales_pixels(self.functional)
            return [
                make_probe(shape, count, "uint8" if raw and len(shape) == 4 else x.dtype, preprocessing).astype(x.dtype)
                for shape, x in zip(shapes, inputs, strict=True)
            ]
        arrays = gather_images(self.images, count, len(shapes))
        if len({len(array) for array in arrays}) > 1:
            raise ExportError(f"images must have as many rows for every input. Received: {[*map(len, arrays)]}.")
        arrays = [np.asarray(preprocessing(x)) if x.dtype == "uint8" and preprocessing else x for x in arrays]
        for array, shape in zip(arrays, shapes, strict=True):
            if not has_shape(array, shape) or not len(array):
                raise ExportError(
                    f"images must have the shape {shape} of the model's input. Received: shape {array.shape}."
                )
        return [array.astype(x.dtype) for array, x in zip(arrays, inputs, strict=True)]

    def describe(self, shapes, further_outputs=()):
        """See `describe_model`."""
        preprocessing = self.preprocessing if len(shapes) == 1 else None  # which is of images alone
        return describe_model(self.model, self.functional, shapes, preprocessing, self.metadata, further_outputs)


def prepare(model: keras.Model, **options) -> Source:
    """The `Source` of a model; `options` are its other fields. ExportError if it cannot be exported at all."""
    with raise_converter_errors():
        model = getattr(model, "folded_from", model)  # a folded model of this package
        functional = prepare_model(model)
    return Source(model, functional, **options)


@contextlib.contextmanager
def raise_converter_errors(format_name=None):
    """A context that turns any error of a model, a converter or a runtime into an ExportError with that cause."""
    try:
        yield
    except KerasVitError:
        raise
    except Exception as error:
        message = (str(error).strip().splitlines() or ["no message"])[0].rstrip(".")
        advice = find_advice(error) or "Try another format, or export a part of the model."
        raise ExportError(
            f"The model could not be exported{f' as {format_name}' if format_name else ''}: "
            f"{type(error).__name__}, {message}. Nothing was written. {advice}"
        ) from error
