"""A model made ready for export: functional, built, float32, with the shapes its artefact will take."""

import contextlib

import keras

from keras_vit.errors import ExportError
from keras_vit.lora import without_lora


def prepare_model(model: keras.Model) -> keras.Model:
    """`model` as a functional float32 model with the same weights; itself where it already is one."""
    require_model(model)
    source = without_lora(as_functional(model))
    # `model.layers` has the outermost layers alone, and Keras has no public way to the inner ones.
    if any(layer.compute_dtype != "float32" for layer in source._flatten_layers()):
        source = rebuild_in_float32(source)
    if source is not model and hasattr(model, "preprocessing"):
        source.preprocessing = model.preprocessing
    source.labels = getattr(model, "labels", None)
    require_labels(source.labels)
    return source


def require_labels(labels):
    """Raises unless the names of classes are text that UTF-8 can encode, as every format stores them."""
    for i, name in enumerate(() if labels is None else labels):
        if not isinstance(name, str) or not is_unicode(name):
            raise ExportError(
                f"The name of class {i} must be text that UTF-8 can encode. Received: {name!r}. Set model.labels."
            )


def is_unicode(text):
    """Whether the text has no lone surrogates, which Python makes of file names that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def require_model(model):
    if not isinstance(model, keras.Model):
        raise ExportError(f"Only a keras.Model can be exported. Received: {type(model).__name__}.")
    if not model.built:
        raise ExportError(f"The model {model.name!r} is not built: call it on a batch of images first, then export it.")


def as_functional(model):
    """A subclassed model called on inputs of the shapes it was built with; a functional one as it is."""
    if isinstance(model, keras.Sequential):
        # A Sequential model has no `input` structure of its own; the functional model inside it has.
        return model._functional
    if getattr(model, "inputs", None):
        return model
    # Keras keeps the shapes that `build` was called with for its own files alone.
    shapes = list((getattr(model, "_build_shapes_dict", None) or {}).values())
    if len(shapes) != 1 or not isinstance(shapes[0], tuple):
        raise ExportError(
            f"The inputs of the subclassed model {model.name!r} are not known. Wrap it: "
            "x = keras.Input(shape); keras.Model(x, model(x))."
        )
    x = keras.Input(shapes[0][1:], name="images")
    return keras.Model(x, model(x, training=False), name=model.name)


def rebuild_in_float32(model):
    """The same architecture and weights with every layer in float32, rebuilt from its configuration."""
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
    return "float32" if config in ("mixed_bfloat16", "mixed_float16", "bfloat16", "float16") else config


def pack_inputs(model, inputs):
    """A flat list of tensors in the structure in which the model takes them: alone, as a list, by name."""
    return keras.tree.pack_sequence_as(model.input, list(inputs))


@contextlib.contextmanager
def follow_export_calls(model):
    """Within, `export_call` takes the place of `call` in every layer that has one."""
    # Layers inside layers, too, for which Keras has no public way.
    layers = [layer for layer in model._flatten_layers() if hasattr(layer, "export_call")]
    for layer in layers:
        vars(layer)["call"] = layer.export_call
    try:
        yield
    finally:
        for layer in layers:
            del vars(layer)["call"]


def choose_input_shapes(model, source, image_size, free_size):
    """The shape of each input in the artefact; None for a free batch, height or width.

    Args:
        model: what the user gave; its `preprocessing` may know the image size.
        source: the functional model.
        image_size: int, (height, width) or None; fixes what the model leaves free.
        free_size: whether the format can leave height and width free.

    Raises:
        ExportError: if a size is needed and not known, or contradicts the model's.
    """
    return [choose_input_shape(tuple(x.shape), model, image_size, free_size) for x in source.inputs]


def choose_input_shape(shape, model, image_size, free_size):
    if len(shape) != 4:
        return shape
    if image_size is not None:
        size = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size)
        if min(size) < 1 or any(own not in (None, wanted) for own, wanted in zip(shape[1:3], size, strict=True)):
            raise ExportError(f"The model takes images of {shape[1]}x{shape[2]}. Received: image_size={size}.")
        return (shape[0], *size, shape[3])
    if None not in shape[1:3] or free_size:
        return shape
    return (shape[0], *require_known_size(model), shape[3])


def require_known_size(model):
    size = getattr(getattr(model, "preprocessing", None), "image_size", None)
    if size is None:
        raise ExportError(f"The model {model.name!r} takes images of any size. Pass image_size=(height, width).")
    return tuple(size)


def fill_free_sizes(shapes, model):
    """The shapes with free heights and widths filled for the proof: the model's own size, else 224."""
    size = getattr(getattr(model, "preprocessing", None), "image_size", None) or (224, 224)
    return [
        (shape[0], *(n or m for n, m in zip(shape[1:3], size, strict=True)), shape[3]) if len(shape) == 4 else shape
        for shape in shapes
    ]
