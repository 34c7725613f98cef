"""An open checkpoint: its named tensors, the faults it may have, and limits on what an untrusted file may claim.

The size of a file limits its cost before it is refused: an archive may unpack to at most eight times its size, plus
`SLACK`. Tensors, layers and descriptions cost time and memory in Python, so their numbers have the limits below.
"""

import contextlib
import io
import json
import math
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from keras_vit.errors import CheckpointError, ConfigError, KerasVitError
from keras_vit.models import cost
from keras_vit.models.config import ResNetConfig, ViTConfig
from keras_vit.models.preprocessing import Preprocessing, UnknownPreprocessing, preprocessing_of
from keras_vit.models.variants import MODELS

SLACK = 2**24  # bytes that any file may unpack to: a head of zeros compresses to nothing
MOST_TENSORS = 2**15  # H/14 with two optimizer slots has some 1,500
MOST_LAYERS = 500  # blocks and units; R200x3 has 66
MOST_JSON = 2**22  # bytes; the names of 21,843 classes take 0.7 million
MOST_DIRECTORY = 2**22  # bytes of a zip archive's list of members; zipfile makes an object of 330 bytes from each
MOST_MISSING = 0.5  # of a model's numbers; with fewer missing, it is built so that each missing tensor is named


class Fault(CheckpointError):
    """An error in a checkpoint: a sentence without its beginning, the file's path (`about_file`)."""


@contextlib.contextmanager
def about_file(path: str | os.PathLike) -> Iterator[None]:
    """A scope for the file at `path`: turns a `Fault` into a CheckpointError that names the file.

    >>> with about_file("mine.npz"):
    ...     raise Fault("lacks the tensor cls.")
    Traceback (most recent call last):
    keras_vit.errors.CheckpointError: mine.npz lacks the tensor cls.
    """
    try:
        yield
    except Fault as fault:
        raise CheckpointError(f"{os.fspath(path)} {fault}") from fault.__cause__


@contextlib.contextmanager
def blame_file(complaint: str) -> Iterator[None]:
    """A scope in which a library reads untrusted bytes: turns any exception into a `Fault`.

    Libraries also raise errors that their authors did not foresee, so no list of exceptions is complete. Only such
    reading belongs into the scope: it would blame the file for mistakes of this package.
    """
    try:
        yield
    except KerasVitError:
        raise
    except Exception as error:
        cause = str(error).rstrip(".") or type(error).__name__
        raise Fault(f"{complaint}: {cause}. Fetch the file again from its source.") from error


class ShortReads(io.FileIO):
    """A file that refuses the long read by which zipfile would load a list of too many members."""

    def read(self, size=-1):
        if size > MOST_DIRECTORY:
            raise ValueError(f"its list of members takes {size:,} bytes, and at most {MOST_DIRECTORY:,} are read")
        return super().read(size)


def require_few(tensors):
    if tensors > MOST_TENSORS:
        raise Fault(f"holds {tensors:,} tensors; checkpoints of at most {MOST_TENSORS:,} are read.")


def require_honest(members, path):
    """Refuses an archive that claims many times its size: trained weights hardly compress."""
    require_few(len(members))
    if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in members):
        raise Fault("is compressed by a method that checkpoints do not use; expected stored or deflated members.")
    promised = sum(member.file_size for member in members)
    if promised > 8 * path.stat().st_size + SLACK:
        raise Fault(
            f"has {path.stat().st_size:,} bytes and claims {promised:,} bytes of tensors; weights do not compress so "
            "well."
        )


def open_archive(path: Path, complaint: str) -> zipfile.ZipFile:
    """Opens the zip archive at `path`, unless it claims more than its bytes can hold."""
    with blame_file(complaint):
        with ShortReads(path) as file:
            zipfile.ZipFile(file)
        archive = zipfile.ZipFile(path)
    require_honest(archive.infolist(), path)
    return archive


def parse_json(text):
    if len(text) > MOST_JSON:
        raise Fault(f"has a description of over {MOST_JSON >> 20} MiB.")
    with blame_file("contains a model description that is not valid JSON"):
        return json.loads(text)


def require_plausible(config, numbers, share=1):
    """Refuses a configuration with more parameters than the file has numbers, before anything is built.

    With `share` below 1, the file needs only this share of the parameters.
    """
    needed = cost.count_parameters(config)
    if share * needed > numbers:
        raise Fault(f"describes a model of {needed:,} parameters but holds only {numbers:,} numbers.")
    if cost.count_layers(config) > MOST_LAYERS:
        raise Fault(
            f"describes a model of {cost.count_layers(config):,} layers; models of at most {MOST_LAYERS} are built."
        )


@dataclass(frozen=True)
class Tensor:
    """A tensor of a file: its name there, its shape, and the function `read()` that returns its values."""

    source: str
    shape: tuple
    read: Callable

    def map(self, shape, function):
        """The tensor of the given shape that `function` makes from this one's values."""
        return replace(self, shape=tuple(shape), read=lambda: function(self.read()))

    def with_length(self, axis, length, function):
        """The tensor that `function` makes from this one's values by changing the length of one axis."""
        return self.map((*self.shape[:axis], length, *self.shape[axis + 1 :]), function)

    def reshape(self, shape):
        return self.map(shape, lambda values: values.reshape(shape))

    def share(self, uses):
        """This tensor, for `uses` others made from it: values are read for the first and dropped after the last."""
        kept, left = None, 0

        def read():
            nonlocal kept, left
            if not left:
                kept, left = self.read(), uses
            left -= 1
            values, kept = kept, kept if left else None
            return values

        return replace(self, read=read)


def gather(named: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """{name: Tensor} from (name, tensor) pairs; raises a Fault if two have the same name."""
    tensors = {}
    for name, tensor in named:
        if name in tensors:
            raise Fault(f"holds two tensors of the same name, {name}. Fetch the file again from its source.")
        tensors[name] = tensor
    return tensors


def count_numbers(tensors: Mapping[str, Tensor]) -> int:
    return sum(math.prod(tensor.shape) for tensor in tensors.values())


@dataclass(frozen=True)
class Hints:
    """Facts about a checkpoint that its tensors may not show, from the caller or from files beside it."""

    num_heads: int | None = None  # overriding the files
    variant_heads: int | None = None  # attention heads of the requested variant, if the files state none
    image_size: int | tuple[int, int] | None = None  # in patches of `patch_size`, for grids that are not square
    patch_size: int | tuple[int, int] | None = None  # that of the requested model; None for the file's
    own_size: tuple[int, int] | None = None  # (height, width) of the images that the file was trained on, if known
    fields: Mapping = field(default_factory=dict)  # those of the configuration that tensors cannot show


@dataclass(frozen=True)
class OpenCheckpoint:
    """The contents of a checkpoint: tensors under official names, and a description of their model."""

    path: Path
    config: ViTConfig | ResNetConfig
    tensors: Mapping[str, Tensor]  # not read yet
    preprocessing: Preprocessing | UnknownPreprocessing | None = None  # None for the paper's
    labels: tuple[str, ...] | None = None
    trainable: bool | Mapping[str, bool] = True  # the parts of the model that train, as the argument of `Classifier`


# The configurations of the families of models, by the names of their classes in a file's description.
CONFIGS = {path.partition(":")[2]: config for config, path in MODELS.items()}


def serialize_model(model):
    """The description of a model that `zoo.save` writes into every file: {"class_name": ..., "config": {...}}.

    Class and arguments are as in Keras' `.keras` files, without those that concern training.
    """
    config = {key: value for key, value in model.get_config().items() if key not in ("name", "dtype", "trainable")}
    return {"class_name": type(model).__name__, "config": config}


def read_labels(labels, num_classes):
    if labels is None:
        return None
    if not isinstance(labels, list) or len(labels) != num_classes:
        raise Fault(f"describes a model of {num_classes} classes but does not name each of them once.")
    return tuple(map(str, labels))


def read_description(description):
    """Reads (config, preprocessing, labels) from a model's description; only our own constructors run."""
    try:
        values = dict(description["config"])
        kind = CONFIGS[description["class_name"]]
        config = kind(**{x.name: values[x.name] for x in fields(kind)})
        stated = values.get("preprocessing")
        preprocessing = preprocessing_of(stated) if stated else None
    except ConfigError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise Fault(f"does not describe a model of this package: {error!r}.") from error
    if isinstance(preprocessing, Preprocessing) and len(preprocessing.mean) != config.num_channels:
        raise Fault(
            f"describes a model of {config.num_channels} channels but a preprocessing of {len(preprocessing.mean)}."
        )
    return config, preprocessing, read_labels(values.get("labels"), config.num_classes)
