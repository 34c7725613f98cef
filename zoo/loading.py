"""From a name or a file to a model: `keras_vit.zoo.load`."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from keras_vit.errors import CheckpointError, ConfigError
from keras_vit.models.config import ResNetConfig, ViTConfig, unknown, variant
from keras_vit.models.preprocessing import Preprocessing
from keras_vit.zoo import registry
from keras_vit.zoo.adapt import HEADS, adapt
from keras_vit.zoo.architecture import read_config
from keras_vit.zoo.dialects import canonical
from keras_vit.zoo.download import fetch
from keras_vit.zoo.tensors import Tensor, open_npz
from keras_vit.zoo.variables import assign, variables

SUFFIXES = (".npz", ".keras")


@dataclasses.dataclass(frozen=True)
class Source:
    """Everything a checkpoint knows: tensors under canonical names, and the model they came from."""

    path: Path
    config: ViTConfig | ResNetConfig
    tensors: Mapping
    preprocessing: Preprocessing | None = None
    labels: tuple | None = None


def load(name, *, weights="default", num_classes=None, image_size=None, labels=None, dtype=None, **fields):
    """A model by name, with weights: a `keras.Model` from images (n, h, w, 3) in [-1, 1] to logits (n, num_classes).

    Args:
        name: a variant such as "ViT-B/16", a variant and tag such as "ViT-L/16:augreg-i21k" (`zoo.list()` shows
            them), or the path of a checkpoint (.npz in an official layout, or .keras), whose architecture is read
            off the file.
        weights: "default" for those the name stands for, fetched once and kept; None for random ones; or the path
            of a checkpoint of that variant.
        num_classes: another number than the checkpoint's puts a new zero head in place of its head (section 3.2);
            0 gives the features under the head.
        image_size: int or (height, width); position embeddings are resized the authors' way.
        labels: names of the classes; None keeps the checkpoint's where the classes stay.
        dtype: policy of the layers, such as "mixed_bfloat16".
        **fields: other fields of the configuration, such as dropout_rate=0.1.

    Raises:
        UnknownNameError: for a name that no table holds.
        CheckpointError: for a file that is missing, damaged, foreign, or of another architecture.
        DownloadError: when weights cannot be fetched.
        ConfigError: for arguments that no model can have.

    >>> keras_vit.zoo.load("ViT-Ti/16", weights=None, num_classes=10)(numpy.zeros((1, 224, 224, 3))).shape
    (1, 10)
    """
    num_classes = len(labels) if num_classes is None and labels is not None else num_classes
    changes = {"num_classes": num_classes, "image_size": image_size}
    changes = {**{key: value for key, value in changes.items() if value is not None}, **fields}
    if weights is None:
        row = variant(name.partition(":")[0])
        return build(row.config, changes, labels=labels, dtype=dtype, name=slug(row.name))
    source, title = locate(name, weights)
    model = build(source.config, changes, source.preprocessing, labels or source.labels, dtype, slug(title))
    tensors, fresh = adapt(source.tensors, source.config, model.config)
    assign(model, tensors, source.path, fresh)
    return model


def locate(name, weights):
    """The Source that a name and `weights` stand for, and what the model is called."""
    if weights != "default":
        row = variant(str(name).partition(":")[0])
        return of_variant(open_source(Path(weights)), row), row.name
    found = registry.resolve(name)
    if isinstance(found, Path):
        return open_source(found), found.stem
    source = open_source(fetch(found))
    if found.variant is None:
        return source, source.path.stem
    return promised(of_variant(source, variant(found.variant)), found), found.variant


def slug(title):
    """A name that Keras accepts."""
    return "".join(c if c.isalnum() or c in "-." else "_" for c in title)


def open_source(path):
    """Everything a checkpoint file knows, by its ending."""
    if not path.is_file():
        raise CheckpointError(
            f"There is no file {path}. Give the path of a checkpoint, or a name that zoo.list() shows."
        )
    if path.suffix == ".keras":
        return open_keras(path)
    if path.suffix == ".npz":
        tensors = canonical(path, open_npz(path))
        return Source(path, read_config(path, tensors), tensors)
    raise CheckpointError(f"{path} has an ending this package does not read. Known: {', '.join(SUFFIXES)}.")


def open_keras(path):
    """A model this package saved as `.keras`; nothing in the file is run."""
    import keras

    from keras_vit.models.classifier import Classifier

    try:
        model = keras.saving.load_model(path, compile=False, safe_mode=True)
    except Exception as error:
        raise CheckpointError(f"{path} cannot be read as a Keras model: {error}") from error
    if not isinstance(model, Classifier):
        raise CheckpointError(
            f"{path} holds a {type(model).__name__}, not a model of this package. Read it with keras.saving.load_model."
        )
    tensors = {name: held(name, variable, shape) for name, (variable, shape) in variables(model).items()}
    return Source(path, model.config, tensors, model.preprocessing, model.labels)


def held(name, variable, shape):
    return Tensor(name, shape, lambda: variable.numpy().reshape(shape))


def of_variant(source, row):
    """The source, if it is of that row's architecture; a size that the file cannot know becomes the row's."""
    for field in ("patch_size", "hidden_size", "num_layers", "num_heads", "mlp_dim", "depths", "width_factor"):
        found, expected = trait(source.config, field), trait(row.config, field)
        if found != expected:
            raise CheckpointError(
                f"{source.path} is no {row.name}: {field} is {found} there, {expected} in {row.name}. "
                "Load the file by its path alone to take the architecture from it."
            )
    if source.config.image_size is None:
        return dataclasses.replace(source, config=changed(source.config, {"image_size": row.config.image_size}))
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
    if checkpoint.valid_head and found.num_classes != expected.num_classes or found.image_size != expected.image_size:
        raise CheckpointError(
            f"{source.path} is not {checkpoint.name}: it has {found.num_classes} classes and takes {found.image_size} "
            f"pixels; {expected.num_classes} and {expected.image_size} were expected. Remove it and load again."
        )
    tensors = source.tensors
    if not checkpoint.valid_head:
        found = dataclasses.replace(found, num_classes=0)
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(HEADS)}
    return dataclasses.replace(source, config=found, tensors=tensors, preprocessing=checkpoint.preprocessing)


def build(config, changes, preprocessing=None, labels=None, dtype=None, name=None):
    """A new model of the configuration with some fields changed."""
    target = changed(config, changes)
    if labels is not None and len(labels) != target.num_classes and target.num_classes != config.num_classes:
        labels = None
    if preprocessing is not None and target.image_size is not None:
        preprocessing = dataclasses.replace(preprocessing, image_size=target.image_size)
    return model_class(target)(
        **dataclasses.asdict(target), preprocessing=preprocessing, labels=labels, dtype=dtype, name=name
    )


def changed(config, changes):
    known = [field.name for field in dataclasses.fields(config)]
    for name in changes:
        if name not in known:
            raise ConfigError(unknown("argument", name, known))
    target = dataclasses.replace(config, **changes)
    if target.num_classes not in (0, config.num_classes) and "representation_size" not in changes:
        return dataclasses.replace(target, **({"representation_size": None} if isinstance(target, ViTConfig) else {}))
    return target


def model_class(config):
    from keras_vit.models import ResNet, VisionTransformer

    return ResNet if isinstance(config, ResNetConfig) else VisionTransformer
