"""From a name or a file to a model: `keras_vit.zoo.load`."""

import dataclasses
from pathlib import Path

import keras

from keras_vit.errors import CheckpointError, ConfigError, describe_unknown
from keras_vit.models import build, variant
from keras_vit.models.preprocessing import Preprocessing
from keras_vit.zoo.adapt import HEADS, adapt
from keras_vit.zoo.fetch.companions import fetch_with_companions
from keras_vit.zoo.formats.safetensors import Hints, open_source
from keras_vit.zoo.formats.variables import filling
from keras_vit.zoo.labels import labels as names
from keras_vit.zoo.names import registry
from keras_vit.zoo.resizing import POSITION_MATRICES
from keras_vit.zoo.targets import Asked, require_fields, target


def load(
    name,
    *,
    weights="default",
    num_classes=None,
    image_size=None,
    labels=None,
    head=None,
    num_heads=None,
    preprocessing=None,
    position_interpolation=None,
    dtype=None,
    **fields,
):
    """A model by name, with weights: a `keras.Model` from images (n, h, w, 3) in [-1, 1] to logits (n, num_classes).

    Args:
        name: a variant such as "ViT-B/16", a variant and tag such as "ViT-L/16:augreg-i21k" (`zoo.list()` shows
            them), an AugReg or BiT VTAB file by its stem ("augreg/...", "vtab/..."), "hf://owner/repo" (its JSON
            files tell the model, its input and classes), an address (https://...), or the path of a checkpoint, whose
            architecture is read off the file: .npz in an official layout, .safetensors of timm or transformers,
            .keras or .weights.h5 of this package.
        weights: "default" for those the name stands for, fetched once and kept; None for random ones; or the path
            of a checkpoint of that variant.
        num_classes: another number than the checkpoint's puts a new zero head in place of its head, both its layers
            (section 3.2); 0 gives the features under the head.
        image_size: int or (height, width); position embeddings are resized. It also tells the grid of those that make
            no square: a file with positions for 2 x 3 patches of 32 pixels loads with (64, 96).
        labels: names of the classes; other names than the checkpoint's, or names where it has none, put a new zero
            head too, however many they are. None keeps the checkpoint's where its head stays.
        head: "new" starts from a zero head whatever the classes, "keep" keeps the checkpoint's (labels then name its
            outputs); None decides by num_classes and labels as said above.
        num_heads: attention heads, for a .safetensors file that cannot say: without a config.json beside it, and
            of another size than the paper's, whose heads (Table 1) are assumed.
        preprocessing: a `keras_vit.models.Preprocessing` in place of the file's; needed, before images go in by
            `model.preprocessing`, for a .safetensors file without JSON files that state it.
        position_interpolation: "linear" resizes position embeddings as the authors of ViT do, "bilinear" as those of
            FlexiViT, "bicubic" as timm; None takes what the registry has for that checkpoint, "linear" for files.
        dtype: policy of the layers, such as "mixed_bfloat16".
        **fields: other fields of the configuration: patch_size resizes the patch kernel (FlexiViT), num_channels and
            classifier adapt it, dropout_rate=0.1 and the like are set.

    Raises:
        UnknownNameError: for a name that no table holds.
        CheckpointError: for a file that is missing, damaged, foreign, or of another architecture.
        DownloadError: when weights cannot be fetched.
        ConfigError: for arguments that no model can have, before anything is fetched where the name tells the model.

    A .safetensors file without a config.json beside it is assumed to compute what its library does by default: exact
    GELU, the class token where there is one, and Table 1's heads for the paper's sizes. No file of tensors can tell.

    >>> keras_vit.zoo.load("ViT-Ti/16", weights=None, num_classes=10)(numpy.zeros((1, 224, 224, 3))).shape
    (1, 10)
    """
    if position_interpolation not in (None, *POSITION_MATRICES):
        raise ConfigError(describe_unknown("position_interpolation", position_interpolation, POSITION_MATRICES))
    asked = Asked.of(head, num_classes, labels, image_size, fields)
    dtype = policy(dtype)
    if weights is None:
        return untrained(variant(str(name).partition(":")[0]), asked, num_heads, preprocessing, dtype)
    hints = Hints(num_heads, image_size=image_size, patch_size=fields.get("patch_size"))
    source, title, interpolation = locate(name, weights, hints, asked)
    config, labels, new = target(source.config, source.labels, asked)
    with filling(source.path) as assign:
        model = build(config, fed(preprocessing or source.preprocessing, config), labels, dtype, slug(title))
        tensors, fresh = adapt(source.tensors, source.config, config, new, position_interpolation or interpolation)
        assign(model, tensors, fresh)
    return model


def policy(dtype):
    """The policy of that name (Keras' global one for None)."""
    try:
        return keras.dtype_policies.get(dtype)
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"There is no dtype {dtype!r}. Expected a policy of Keras such as 'float32' or 'mixed_bfloat16'."
        ) from error


def untrained(row, asked, num_heads, preprocessing, dtype):
    """A model of that row with random weights and a zero head."""
    if asked.head == "keep":
        raise ConfigError("head='keep' needs a checkpoint. Received: weights=None.")
    if num_heads is not None:
        asked = dataclasses.replace(asked, fields={**asked.fields, "num_heads": num_heads})
    config, labels, _ = target(row.config, None, asked)
    return build(config, fed(preprocessing, config), labels, dtype, slug(row.name))


def locate(name, weights, hints, asked):
    """The Source that a name and `weights` stand for, what the model is called, and how its positions are resized."""
    if weights != "default":
        row = variant(str(name).partition(":")[0])
        hints = dataclasses.replace(hints, variant_heads=getattr(row.config, "num_heads", None))
        return of_variant(sized(open_source(Path(weights), hints), row.config), row), row.name, "linear"
    found = registry.resolve(name)
    if isinstance(found, Path):
        return open_source(found, hints), found.name.split(".")[0], "linear"
    require_possible(found, asked)
    source = open_source(fetch_with_companions(found), hints)
    if found.variant is None:
        return source, source.path.name.split(".")[0], "linear"
    source = of_variant(sized(source, found.config), variant(found.variant))
    return promised(source, found), found.variant, found.position_interpolation


def require_possible(checkpoint, asked):
    """Refuses, before anything is fetched, what no model of the checkpoint can have."""
    if checkpoint.variant is None:
        require_fields(asked.fields)
    else:
        target(checkpoint.config, names(checkpoint.labels), asked)


def slug(title):
    """A name that Keras accepts."""
    return "".join(c if c.isalnum() or c in "-." else "_" for c in title) or None


def sized(source, config):
    """The source with the image size of `config` where its file cannot know one."""
    if source.config.image_size is not None:
        return source
    return dataclasses.replace(source, config=dataclasses.replace(source.config, image_size=config.image_size))


def of_variant(source, row):
    """The source, if it is of that row's architecture."""
    for field in ("patch_size", "hidden_size", "num_layers", "num_heads", "mlp_dim", "depths", "width_factor"):
        found, expected = trait(source.config, field), trait(row.config, field)
        if found != expected:
            raise CheckpointError(
                f"{source.path} is not a {row.name}: {field} is {found} there, {expected} in {row.name}. "
                "Load the file by its path alone to take the architecture from it."
            )
    return source


def trait(config, field):
    """A field of the configuration or of its backbone; None where neither has it."""
    backbone = getattr(config, "backbone", None)
    return getattr(config, field, getattr(backbone, field, None))


def promised(source, checkpoint):
    """The source, if it is what the registry promises, with what the registry knows of it.

    A head that is all zeros is dropped: it would name classes at random.
    """
    found, expected = source.config, checkpoint.config
    other_classes = checkpoint.valid_head and found.num_classes != expected.num_classes
    if other_classes or found.image_size != expected.image_size:
        raise CheckpointError(
            f"{source.path} is not {checkpoint.name}: it has {found.num_classes} classes and takes {found.image_size} "
            f"pixels; {expected.num_classes} and {expected.image_size} were expected. Remove it and load again."
        )
    tensors = source.tensors
    if not checkpoint.valid_head:
        found = dataclasses.replace(found, num_classes=0)
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(HEADS)}
    return dataclasses.replace(
        source,
        config=found,
        tensors=tensors,
        preprocessing=checkpoint.preprocessing,
        labels=names(checkpoint.labels),
    )


def fed(preprocessing, config):
    """A Preprocessing at the model's size and of its channels, or why there is none; None is the paper's."""
    if isinstance(preprocessing, Preprocessing):
        return preprocessing.fitted(config.image_size, config.num_channels)
    return preprocessing
