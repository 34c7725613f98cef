"""Loads a model by name or from a file: `keras_vit.zoo.load`."""

import dataclasses
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, Unpack

import keras

from keras_vit.errors import CheckpointError, ConfigError, describe_unknown
from keras_vit.files import sha256
from keras_vit.layers.interpolation import POSITION_MATRICES
from keras_vit.models import build
from keras_vit.models.classifier import Classifier, set_trainable
from keras_vit.models.config import ModelFields, PositionInterpolation, ViTConfig, is_free_size
from keras_vit.models.preprocessing import Preprocessing
from keras_vit.models.variants import MODELS, VARIANTS
from keras_vit.zoo.adapt import HEADS, Request, adapt, plan_adaptation, plan_target, require_fields
from keras_vit.zoo.formats import open_checkpoint
from keras_vit.zoo.formats.checkpoint import Fault, Hints, about_file
from keras_vit.zoo.formats.variables import build_filled
from keras_vit.zoo.names import registry
from keras_vit.zoo.names.rows import class_names

# Fields of a configuration that tensors cannot show, and that do not depend on resizing.
UNTOLD = ("activation", "gelu_approximate", "layer_norm_epsilon", "class_token_position")
WEIGHTS = Path(__file__).with_name("weights")  # the shipped ones: no network, no cache, no lock


def find_policy(dtype):
    """The dtype policy of this name (Keras' global one for None)."""
    try:
        return keras.dtype_policies.get(dtype)
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"There is no dtype {dtype!r}. Expected a policy of Keras such as 'float32' or 'mixed_bfloat16'."
        ) from error


def keras_name(title):
    """Turns the title into a name that Keras accepts."""
    return "".join(c if c.isalnum() or c in "-." else "_" for c in title) or None


def fit_preprocessing(preprocessing, config):
    """Fits a Preprocessing to the model's size and channels, or says why there is none; None stands for the paper's."""
    if isinstance(preprocessing, Preprocessing):
        return preprocessing.adapt_to(config.own_size, config.num_channels)
    return preprocessing


def build_untrained(row, request, num_heads, preprocessing, policy):
    """Builds a model of this row with random weights and a zero head."""
    if request.head == "keep":
        raise ConfigError("head='keep' needs a checkpoint. Received: weights=None.")
    if num_heads is not None:
        request = dataclasses.replace(request, fields={**request.fields, "num_heads": num_heads})
    if request.head is None and request.fields.get("num_classes", row.config.num_classes):
        request = dataclasses.replace(request, head="new")
    target = plan_target(row.config, None, request)
    preprocessing = fit_preprocessing(preprocessing, target.config)
    return build(target.config, preprocessing, target.labels, policy, keras_name(row.name))


def find_shipped(public):
    """The path of a shipped checkpoint's file, checked against the registry's digest."""
    path, advice = WEIGHTS / public.file, "It comes with keras-vit: install it again."
    try:
        digest = sha256(path)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}. {advice}") from error
    if digest != public.sha256:
        raise CheckpointError(f"{path} has the sha256 {digest}; the registry has {public.sha256}. {advice}")
    return path


def require_possible(public, request):
    """Refuses a request that the public checkpoint cannot meet, before anything is fetched."""
    if public.variant is None:
        require_fields(request.fields)
    else:
        plan_adaptation(public.config, class_names(public.labels), request)


def field_of(config, field):
    """A field of the configuration or of its backbone; None if neither has it."""
    backbone = getattr(config, "backbone", None)
    return getattr(config, field, getattr(backbone, field, None))


def require_variant(config, row):
    """Refuses a checkpoint unless it has the row's architecture."""
    if type(config) is not row.config_class:
        kinds = [MODELS[each].partition(":")[2] for each in (type(config), row.config_class)]
        raise Fault(f"is not a {row.name} checkpoint: it holds a model of class {kinds[0]}, not {kinds[1]}.")
    for field in ("patch_size", "hidden_size", "num_layers", "num_heads", "mlp_dim", "depths", "width_factor"):
        found, expected = field_of(config, field), field_of(row.config, field)
        if found != expected:
            raise Fault(
                f"is not a {row.name} checkpoint: {field} is {found}; {row.name} has {expected}. "
                "Load the file by its path alone to take the architecture from it."
            )


def apply_registry(checkpoint, public):
    """Checks the checkpoint against the registry, and completes it by the registry's facts.

    A head that is all zeros is dropped, since it would name classes at random.
    """
    found, expected = checkpoint.config, public.config
    for name in (*(["num_classes"] if public.valid_head else []), "image_size", *public.fields):
        if getattr(found, name) != getattr(expected, name):
            raise Fault(
                f"is not {public.name}: {name} is {getattr(found, name)!r}; {getattr(expected, name)!r} was expected. "
                "Remove it and load again."
            )
    tensors = checkpoint.tensors
    if not public.valid_head:
        found = dataclasses.replace(found, num_classes=0)
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(HEADS)}
    facts = {"preprocessing": public.preprocessing, "labels": class_names(public.labels)}
    return dataclasses.replace(checkpoint, config=found, tensors=tensors, **facts)


def open_as_variant(path, row, hints, config):
    """Opens the checkpoint at a path, which must be of this variant; `config` has its image size, if no file has."""
    hints = dataclasses.replace(hints, variant_heads=getattr(config, "num_heads", None))
    checkpoint = open_checkpoint(path, hints)
    if checkpoint.config.image_size is None:
        own = dataclasses.replace(checkpoint.config, image_size=config.image_size)
        checkpoint = dataclasses.replace(checkpoint, config=own)
    with about_file(path):
        require_variant(checkpoint.config, row)
    return checkpoint


def choose_variant(name, weights):
    """The variant of random weights, or of a file's; None if the name chooses the weights."""
    if weights == "default":
        return None
    head, _, tag = str(name).partition(":")
    variant = registry.find_variant(head)
    if tag:
        raise ConfigError(f"A tag names weights. Received: {name} with weights={weights!r}; leave the tag out.")
    return variant


def weights_path(weights):
    """The path of the checkpoint given as weights=."""
    path = Path(os.path.expanduser(weights))
    if not path.exists() and ("://" in str(weights) or str(weights).partition(":")[0] in VARIANTS):
        raise ConfigError(
            f"weights must be the path of a checkpoint. Received the name {weights}: pass it as the first argument."
        )
    return path


def require_heads(config, num_heads):
    """Refuses a number of heads that contradicts the checkpoint's."""
    found = getattr(config, "num_heads", None)
    if num_heads not in (None, found):
        raise ConfigError(f"num_heads is {found} in the checkpoint. Received: num_heads={num_heads!r}. Leave it out.")


def locate(name, hints, request):
    """(the OpenCheckpoint of a name, the model's title)."""
    found = registry.resolve(name)
    if isinstance(found, Path):
        return open_checkpoint(found, hints), found.name.split(".")[0]
    if found.file:
        path = find_shipped(found)
    else:
        require_possible(found, request)
        from keras_vit.zoo.fetch.download import fetch_with_companions

        path = fetch_with_companions(found)
    if found.variant is None:
        return open_checkpoint(path, hints), path.name.split(".")[0]
    untold = {name: value for name, value in found.fields.items() if name in UNTOLD}
    config: Any = found.config
    if isinstance(config, ViTConfig):
        untold |= {name: getattr(config, name) for name in ("classifier", "position_interpolation")}
    hints = dataclasses.replace(hints, own_size=config.image_size, fields={**untold, **hints.fields})
    checkpoint = open_as_variant(path, VARIANTS[found.variant], hints, config)
    with about_file(path):
        return apply_registry(checkpoint, found), found.variant


def load(
    name: str | os.PathLike[str],
    *,
    weights: str | os.PathLike[str] | None = "default",
    num_classes: int | None = None,
    image_size: int | tuple[int, int] | tuple[None, None] | None = None,
    labels: Iterable[str] | None = None,
    head: Literal["new", "keep"] | None = None,
    num_heads: int | None = None,
    preprocessing: Preprocessing | None = None,
    position_interpolation: PositionInterpolation | None = None,
    dtype: str | keras.DTypePolicy | None = None,
    **fields: Unpack[ModelFields],
) -> Classifier:
    """Loads a model by name: a `keras.Model` from images (n, h, w, 3) in [-1, 1] to logits (n, num_classes).

    Args:
        name: a variant such as "ViT-B/16", a variant and tag such as "ViT-L/16:augreg-i21k" (`zoo.list()` shows
            them), an AugReg or BiT VTAB file by its stem ("augreg/...", "vtab/..."), "hf://owner/repo" (its JSON
            files describe the model, its input and classes), an address (https://...), or the path of a checkpoint, or
            of a folder with one (a run, or one of timm or transformers with model.safetensors). The architecture is
            read from the file: .npz in an official layout, .safetensors of timm or transformers, .keras or
            .weights.h5 of this package. Frozen parts in a .keras file stay frozen, unless the model gets a new head,
            or loses its own.
        weights: "default" for the weights of that name, shipped with the package or fetched once and kept; None for
            random ones; or the path of a checkpoint of that variant.
        num_classes: if it differs from the checkpoint's, a new zero head replaces both layers of its head (section
            3.2); 0 leaves the head out, and the model returns its features.
        image_size: int or (height, width); position embeddings are resized to it. It also gives the grid of embeddings
            that are not square: a file with positions for 2 x 3 patches of 32 pixels loads with (64, 96). (None, None)
            makes a model for images of any multiple of the patch size: in each call it resizes its position embeddings,
            stored as in the checkpoint.
        labels: names of the classes; if they differ from the checkpoint's, or it has none, the model also gets a new
            zero head, whatever their number. None keeps the checkpoint's labels if its head stays.
        head: "new" starts from a zero head in any case, "keep" keeps the checkpoint's (labels then name its outputs);
            for None, num_classes and labels decide as above.
        num_heads: attention heads, for a .safetensors file that does not state them: without a config.json beside it,
            and of none of the paper's sizes, for which Table 1's heads are assumed.
        preprocessing: a `keras_vit.models.Preprocessing` in place of the file's. A .safetensors file needs it before
            `model.preprocessing` can be used, unless JSON files beside it state one.
        position_interpolation: "linear" resizes position embeddings as the authors of ViT do, "bilinear" as those of
            FlexiViT, "bicubic" as timm, "bicubic-plain" as transformers, "dinov2" as its authors; None as the authors
            of the weights do. The model's configuration keeps it.
        dtype: policy of the layers, such as "mixed_bfloat16".
        **fields: other fields of the configuration: patch_size resizes the patch kernel (FlexiViT), num_channels and
            classifier adapt the weights, dropout_rate=0.1 and others are only set. With weights=None any field may be
            given, such as position_embedding="2d".

    Returns:
        A `VisionTransformer` or `ResNet` with the attributes `config`, `preprocessing` and `labels`.

    Raises:
        UnknownNameError: for an unknown name.
        CheckpointError: for a file that is missing, damaged, foreign, or of another architecture.
        DownloadError: when weights cannot be fetched.
        ConfigError: for arguments that are invalid or contradict each other or the checkpoint; raised before anything
            is fetched if the name determines the model.

    A .safetensors file without a config.json beside it is assumed to have its library's defaults: exact GELU, the class
    token if there is one, and Table 1's heads for the paper's sizes. Tensors alone cannot show these.

    >>> model = keras_vit.zoo.load("ViT-Ti/16", weights=None, num_classes=10)
    >>> tuple(model(np.zeros((1, 224, 224, 3))).shape)
    (1, 10)
    """
    if position_interpolation not in (None, *POSITION_MATRICES):
        raise ConfigError(describe_unknown("position_interpolation", position_interpolation, POSITION_MATRICES))
    image_size = tuple(image_size) if isinstance(image_size, list) else image_size
    request = Request.from_arguments(head, num_classes, labels, image_size, fields)
    policy = find_policy(dtype)
    variant = choose_variant(name, weights)
    if weights is None:
        if position_interpolation and isinstance(variant.config, ViTConfig):
            request.fields["position_interpolation"] = position_interpolation
        return build_untrained(variant, request, num_heads, preprocessing, policy)
    untold = {name: value for name, value in fields.items() if name in UNTOLD}
    size: Any = None if is_free_size(image_size) else image_size  # (None, None) tells nothing of the file's grid
    hints = Hints(num_heads, image_size=size, patch_size=fields.get("patch_size"), fields=untold)
    if variant:
        checkpoint, title = open_as_variant(weights_path(weights), variant, hints, variant.config), variant.name
    else:
        checkpoint, title = locate(name, hints, request)
    require_heads(checkpoint.config, num_heads)
    if position_interpolation and isinstance(checkpoint.config, ViTConfig):
        request.fields["position_interpolation"] = position_interpolation
    target = plan_adaptation(checkpoint.config, checkpoint.labels, request)
    preprocessing = fit_preprocessing(preprocessing or checkpoint.preprocessing, target.config)
    arguments = (target.config, preprocessing, target.labels, policy, keras_name(title))
    interpolation = position_interpolation or getattr(target.config, "position_interpolation", "linear")
    with about_file(checkpoint.path):
        tensors, fresh = adapt(checkpoint.tensors, checkpoint.config, target, interpolation)
        model = build_filled(lambda: build(*arguments), tensors, fresh)
    if not fresh and tensors.keys() == checkpoint.tensors.keys():
        set_trainable(model, checkpoint.trainable)
    return model
