"""Plans the model that `load` was asked for, and adapts a checkpoint's tensors to it.

The two may differ in image size, patches, channels, classifier or head.
"""

import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Mapping

import numpy as np

from keras_vit.errors import ConfigError, describe_unknown
from keras_vit.layers.interpolation import resize_line, resize_offsets, resize_patches, resize_positions, resize_steps
from keras_vit.models.classifier import as_labels
from keras_vit.models.config import ResNetConfig, ViTConfig, change, drop_inapplicable
from keras_vit.models.cost import positioned_prefix
from keras_vit.models.tensors import POOL
from keras_vit.models.variants import MODELS
from keras_vit.zoo.formats.architecture import ROOT
from keras_vit.zoo.formats.npz import prepend_zero
from keras_vit.zoo.names.rows import LABEL_SETS, class_names

HEAD_CHOICES = ("new", "keep")
ARGUMENTS = ("weights", "labels", "head", "preprocessing", "dtype")  # of `load`, besides the fields
HEADS = ("head/", "resnet/head/")
LINE_OFFSETS = re.compile(r"block\d+/unit\d+/(row|column)_attention/relative_pos_emb")
PATCHES = "embedding/kernel"


def require_distinct(labels):
    """Labels as a tuple. Refuses repeated names, except in ImageNet's own lists: crane is the name of two synsets."""
    if labels is None or isinstance(labels, str | Mapping):
        return labels  # `as_labels` raises the error for these
    try:
        labels = tuple(map(str, labels))
    except TypeError as error:
        raise ConfigError(f"labels must be a list of names. Received: {labels!r}.") from error
    repeated = [label for label, count in Counter(labels).items() if count > 1]
    if repeated and labels not in map(class_names, LABEL_SETS):
        raise ConfigError(f"labels must give each class a name of its own. Received twice: {repeated[0]!r}.")
    return labels


@dataclasses.dataclass(frozen=True)
class Request:
    """The arguments of `load` for head and configuration; None stands for the checkpoint's."""

    head: str | None  # "new" or "keep"
    labels: tuple | None
    fields: dict  # of the configuration

    @classmethod
    def from_arguments(cls, head, num_classes, labels, image_size, fields):
        if head is not None and head not in HEAD_CHOICES:
            raise ConfigError(describe_unknown("head", head, HEAD_CHOICES))
        labels = require_distinct(labels)
        num_classes = len(labels) if num_classes is None and labels is not None else num_classes
        asked = {"image_size": image_size, "num_classes": num_classes}
        return cls(head, labels, {**fields, **{name: value for name, value in asked.items() if value is not None}})


@dataclasses.dataclass(frozen=True)
class Target:
    """The model to build, from a checkpoint or from scratch."""

    config: ViTConfig | ResNetConfig
    labels: tuple | None
    new_head: bool


def require_fields(fields, kinds=tuple(MODELS)):
    """Refuses a name that is not a field of any of these kinds of configurations."""
    known = list(dict.fromkeys(field.name for kind in kinds for field in dataclasses.fields(kind)))
    for name in fields:
        if name not in known:
            raise ConfigError(describe_unknown("argument", name, [*known, *ARGUMENTS]))


def representation_width(config):
    """The width of the layer before the head; None if there is none, as in every ResNet."""
    return getattr(config, "representation_size", None)


def takes_new_head(config, wanted, labels, request):
    """Whether the model gets a new head: on request, or because its classes differ in number or name (section 3.2)."""
    differs = wanted.num_classes != config.num_classes or representation_width(wanted) != representation_width(config)
    if request.head == "keep" and not config.num_classes:
        raise ConfigError("head='keep' needs a head, but the checkpoint has none. Leave head= out for a new one.")
    if request.head == "keep" and differs:
        raise ConfigError(
            f"head='keep' keeps the checkpoint's head unchanged, of {config.num_classes} classes. Received: "
            f"{wanted.num_classes} classes, or another representation_size. Leave head= out for a new head."
        )
    if request.head == "new" and not wanted.num_classes:
        raise ConfigError("head='new' needs classes. Received: none. Pass num_classes= or labels=.")
    renamed = request.labels is not None and request.labels != labels
    if request.head == "new" or (request.head is None and wanted.num_classes and (differs or renamed)):
        return True
    width, new_width = (getattr(each, "features", None) for each in (config, wanted))
    if (wanted.num_classes or representation_width(wanted)) and width != new_width:
        raise ConfigError(
            f"classifier={wanted.classifier!r} gives vectors of {new_width} numbers, but the checkpoint's head reads "
            f"{width}. Pass head='new' for a new head, or num_classes=0 and representation_size=None for none."
        )
    return False


def plan_target(config, labels, request):
    """Plans the `Target` of a request for a checkpoint of the given configuration and labels."""
    changes = drop_inapplicable(config, request.fields)
    require_fields(changes, (type(config),))
    if isinstance(config, ViTConfig) and changes.get("classifier") == "patches":
        changes = {"class_token": config.has_class_token, **changes}  # the patches were trained with it
    wanted = change(config, changes)
    new_head = takes_new_head(config, wanted, labels, request)
    if new_head and isinstance(config, ViTConfig):
        plain = {"representation_size": None, "unit_vectors": False, "head_bias": True}
        wanted = dataclasses.replace(wanted, **{name: plain[name] for name in plain.keys() - request.fields.keys()})
    if new_head and "probabilities" not in request.fields:
        wanted = dataclasses.replace(wanted, probabilities="softmax")
    kept = None if new_head or wanted.num_classes != config.num_classes else labels
    names = as_labels(kept if request.labels is None else request.labels, wanted)
    return Target(config=wanted, labels=names, new_head=new_head)


def plan_adaptation(config, labels, request):
    """`plan_target` for tensors of the given configuration: they can be resized, but not converted to another kind."""
    target = plan_target(config, labels, request)
    for field in dataclasses.fields(config):
        name, own, wanted = field.name, getattr(config, field.name), getattr(target.config, field.name)
        if field.metadata.get("fixed") and own != wanted:
            raise ConfigError(
                f"{name} is {own!r} in the checkpoint, whose weights cannot be converted. Received: {name}="
                f"{wanted!r}. Leave it out, or train from random weights: keras-vit pretrain, in Python weights=None."
            )
    return target


def drop(tensors, prefixes):
    """Removes tensors whose names begin with one of these prefixes."""
    for name in [name for name in tensors if name.startswith(prefixes)]:
        del tensors[name]


def set_head(tensors, source, target, new_head):
    """Replaces both layers of the old head by a new head (section 3.2); a model of features keeps the tanh layer."""
    prefixes: tuple[str, ...] = HEADS if new_head or source.num_classes != target.num_classes else ()
    if new_head or representation_width(source) != representation_width(target):
        prefixes += ("pre_logits/",)
    drop(tensors, prefixes)
    return prefixes


def set_channels(tensors, source, target):
    """Repeats the channels, or adds those left over to the others; the response to a grey image stays the same, but
    for kernels that are standardized after it.
    """
    old, new = source.num_channels, target.num_channels
    name = next((name for name in ("conv_root/kernel", ROOT, PATCHES) if name in tensors), None)
    if old == new or name is None:
        return

    def repeat_or_add(kernel):
        kernel = kernel.astype("float32")
        if new < old:
            return kernel[:, :, :new] + kernel[:, :, new:].sum(axis=2, keepdims=True) / new
        copied = np.arange(new) % old
        return kernel[:, :, copied] / np.bincount(copied)[copied, None].astype("float32")

    tensors[name] = tensors[name].with_length(2, new, repeat_or_add)


def set_classifier(tensors, source, target):
    """Removes the class token and its 1-D position embedding, or adds a new one with a zero embedding; also pooling."""
    fresh: tuple[str, ...] = ()
    if source.classifier == "map" != target.classifier:
        drop(tensors, (f"{POOL}/",))
    elif target.classifier == "map" != source.classifier:
        fresh += (f"{POOL}/",)
    if source.has_class_token == target.has_class_token:
        return fresh
    for name, positions in tensors.items() if target.class_token_position else ():
        if name.endswith("/pos_embedding"):
            without = positions.with_length(1, positions.shape[1] - 1, lambda values: values[:, 1:])
            tensors[name] = prepend_zero(positions) if target.has_class_token else without
    if target.has_class_token:
        return (*fresh, "cls")
    tensors.pop("cls", None)
    return fresh


def set_grid(tensors, source, target, interpolation):
    """Resizes the position embeddings to the model's grid of patches, except that of the class token."""
    if source.grid == target.grid:
        return
    rows, columns = target.grid
    prefix = positioned_prefix(target)

    def resize_tokens(values):
        return resize_positions(values, prefix, source.grid, target.grid, interpolation)

    def resize_relative(values):
        return resize_offsets(values, source.grid, target.grid, interpolation)

    # {end of a tensor's name: (axis to resize, its length, function)}
    kinds = {
        "pos_embedding": (1, prefix + rows * columns, resize_tokens),
        "row_embedding": (0, rows, functools.partial(resize_line, length=rows, interpolation=interpolation)),
        "column_embedding": (0, columns, functools.partial(resize_line, length=columns, interpolation=interpolation)),
        "relative_embedding": (0, 2 * rows * columns - 1, resize_relative),
    }
    for name, tensor in tensors.items():
        kind = kinds.get(name.rpartition("/")[2])
        if kind:
            tensors[name] = tensor.with_length(*kind)


def set_line_offsets(tensors, source, target, interpolation):
    """Resizes the vectors of relative positions along rows and columns of an AxialResNet."""
    for name, match in [(name, LINE_OFFSETS.fullmatch(name)) for name in tensors]:
        axis = match and ("column", "row").index(match[1])  # a row is as long as the image is wide
        if match and source.image_size[axis] != target.image_size[axis]:
            offsets = tensors[name].shape[0]
            length = 2 * ((offsets + 1) // 2 * target.image_size[axis] // source.image_size[axis]) - 1
            resize = functools.partial(resize_steps, axis=0, new=length, interpolation=interpolation)
            tensors[name] = tensors[name].with_length(0, length, resize)


def adapt(tensors, source, target, interpolation):
    """Adapts a checkpoint's tensors, {official name: Tensor} of a model with the configuration `source`.

    Returns (the tensors of the model `target`, prefixes of names that keep their initial values).
    """
    tensors, config = dict(tensors), target.config
    fresh = set_head(tensors, source, config, target.new_head)
    set_channels(tensors, source, config)
    set_line_offsets(tensors, source, config, interpolation)
    if isinstance(config, ViTConfig):
        fresh += set_classifier(tensors, source, config)
        if source.patch_size != config.patch_size:
            shape = (*config.patch_size, *tensors[PATCHES].shape[2:])
            tensors[PATCHES] = tensors[PATCHES].map(shape, lambda kernel: resize_patches(kernel, config.patch_size))
        set_grid(tensors, source, config, interpolation)
    return tensors, fresh
