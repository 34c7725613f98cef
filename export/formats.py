"""The formats of an export, a row each, and the `Order` for one. Imports nothing heavy: commands read the rows, too.

Adding a format takes a row in `FORMATS` and a module `keras_vit.export.NAME`, which writes and reads artefacts. In a
package, listed in setup.cfg, its module `reading` reads them.

- `write(order, path)` writes the artefact of an `Order` to `path`; an empty folder may exist there already. It returns
  {layer: way} of the layers that are stored more finely than by `quantize`. A file, unlike a folder, must end in a
  seal, see `staging.seal`.
- Reading takes any artefact, also from elsewhere, and its module may not import Keras when it is imported.
  `load_NAME(path, names=None)` returns a function from a list of arrays to the list of outputs; `names` are the inputs'
  names in the order of the arrays. Its source becomes part of a bundle's predict.py, so it may use only numpy as np,
  pathlib.Path and its own imports. `load(path, names=None)` is the same function, or prepares the path for it.
  `check(path)`, called before a runtime opens the artefact, calls `refuse` if it could do more than compute.
  `weight_bytes(path)` returns the size of the stored weights. `read_description(path)` returns the entries that `write`
  stored in it, or None. A SavedModel has no description, and so no such function.
  `ask_gpu(path)`, if there is one, returns what a GPU runs of the artefact.
"""

import contextlib
import importlib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, get_args

from keras_vit.errors import ExportError, MissingPackageError, require_backend

if TYPE_CHECKING:
    import keras

    from keras_vit.export.proof.mixture import Goal

Quantize = Literal["float16", "dynamic", "int8"]
QUANTIZE = get_args(Quantize)
DIGEST = "[0-9a-f]{12}"  # the first digits of a SHA-256
NOTHING = "(?!)"  # a regular expression that matches no name


@dataclass(frozen=True, kw_only=True)
class Order:
    """The argument of a format's `write`.

    Args:
        model: a functional model in float32.
        shapes: shapes of its inputs in the artefact, None for a free length.
        description: plain values to store in the artefact; empty for a temporary artefact.
        quantize: one of the format's values, or None.
        goal: for "dynamic" and "int8", data to calibrate on and to choose the ways of the layers by.
        endpoints: names of the model's methods: signatures of a format with `endpoints`; in other formats one of
            `further_outputs`, to become the last output, under its name.
        tell: takes lines of text; or None.
    """

    model: "keras.Model"
    shapes: Sequence[tuple[int | None, ...]]
    description: dict[str, Any] = field(default_factory=dict)
    quantize: Quantize | None = None
    goal: "Goal | None" = None
    endpoints: tuple[str, ...] = ()
    tell: Callable[[str], object] | None = None


@dataclass(frozen=True, kw_only=True)
class Format:
    """A row: all facts about a format that code outside its own module needs.

    Args:
        name: its name for users and in files; also that of its module.
        title: the format's own spelling, for sentences.
        suffix: suffix of its paths, such as ".onnx"; "" for the only format, a folder, without one.
        bundled: its path in a bundle, with "/".
        package: the package that pip installs to run it.
        backend: the only one of Keras' backends that writes it; None for any.
        quantize: the values of `quantize` that it supports besides None.
        free_size: whether it can leave the height and width of images free.
        endpoints: whether it can have methods of the model besides the forward pass.
        further_outputs: the endpoints that it can have as a further output of the forward pass.
        files: for a folder, the names of its files, as far as they are known before.
        folder_pattern: for a folder, a regular expression for the names of all its possible files.
        data_pattern: for a file, a regular expression for the rest, after its stem, of the names of files that belong
            to it.
        usual: whether a bundle has it by default.
    """

    name: str
    title: str
    suffix: str
    bundled: str
    package: str
    backend: str | None = None
    quantize: tuple[Quantize, ...] = ()
    free_size: bool = False
    endpoints: bool = False
    further_outputs: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    folder_pattern: str = ""
    data_pattern: str = NOTHING
    usual: bool = True

    def require_backend(self) -> None:
        """Raises an ExportError on another backend than the only one that writes the format."""
        if self.backend:
            require_backend(f"Writing {self.title}", self.backend, error=ExportError)

    @property
    def is_folder(self) -> bool:
        return bool(self.folder_pattern)

    def supported_endpoints(self, names: Iterable[str]) -> tuple[str, ...]:
        """The endpoints, of these, that the format can have."""
        return tuple(name for name in names if self.endpoints or name in self.further_outputs)

    def load_writer(self) -> ModuleType:
        return importlib.import_module(f"keras_vit.export.{self.name}")

    def load_reader(self) -> ModuleType:
        """The module that reads artefacts; a process that imports no Keras runs its file."""
        module = self.load_writer()
        return importlib.import_module(f"{module.__name__}.reading") if hasattr(module, "__path__") else module

    def bundled_files(self) -> list[str]:
        """Names of an artefact's files, relative to the bundle, as far as they are known before."""
        return [f"{self.bundled}/{name}" for name in self.files] or [self.bundled]

    def bundled_pattern(self) -> str:
        """A regular expression for all possible names of an artefact's files in a bundle."""
        if self.is_folder:
            return f"{re.escape(self.bundled)}/({self.folder_pattern})"
        return f"{re.escape(self.bundled)}|{re.escape(Path(self.bundled).stem)}{self.data_pattern}"


FORMATS = (
    Format(
        name="onnx",
        title="ONNX",
        suffix=".onnx",
        bundled="model.onnx",
        package="onnxruntime",
        quantize=QUANTIZE,
        free_size=True,
        further_outputs=("attention",),
        data_pattern=rf"-{DIGEST}\.onnx\.data",
    ),
    Format(
        name="tflite",
        title="TFLite",
        suffix=".tflite",
        bundled="model.tflite",
        package="ai-edge-litert",
        quantize=QUANTIZE,
        further_outputs=("attention",),
    ),
    Format(
        name="stablehlo",
        title="StableHLO",
        suffix=".stablehlo",
        bundled="model.stablehlo",
        package="jax flatbuffers",
        backend="jax",
        further_outputs=("attention",),
        usual=False,
    ),
    Format(
        name="openvino",
        title="OpenVINO",
        suffix=".openvino",
        bundled="openvino/1",  # with a version, as OpenVINO Model Server reads it
        package="openvino",
        quantize=QUANTIZE,
        free_size=True,
        further_outputs=("attention",),
        files=("openvino_model.xml", "openvino_model.bin"),
        folder_pattern=r"openvino_model\.(xml|bin)",
        usual=False,
    ),
    Format(
        name="saved_model",
        title="SavedModel",
        suffix="",
        bundled="saved_model/1",  # with a version, as TensorFlow Serving reads it
        package="tensorflow",
        free_size=True,
        endpoints=True,
        files=(
            "saved_model.pb",
            "fingerprint.pb",
            "variables/variables.index",
            "variables/variables.data-00000-of-00001",
        ),
        folder_pattern=r"saved_model\.pb|fingerprint\.pb|variables/variables\.(index|data-\d{5}-of-\d{5})",
    ),
)
NAMES = tuple(row.name for row in FORMATS)
USUAL = tuple(row.name for row in FORMATS if row.usual)


def format_named(name: str) -> Format:
    """The row for a name; ExportError for an unknown one."""
    for row in FORMATS:
        if row.name == name:
            return row
    raise ExportError(f"No format is called {name!r}. Expected: {', '.join(NAMES)}.")


def format_of_path(path: str | os.PathLike) -> Format:
    """The row of the format for `path`, by its suffix; ExportError for an unknown one."""
    suffix = Path(path).suffix.lower()
    for row in FORMATS:
        if row.suffix == suffix:
            return row
    files = " or ".join(row.suffix for row in FORMATS if row.suffix)
    bare = " or ".join(row.title for row in FORMATS if not row.suffix)
    raise ExportError(
        f"No format has the suffix {suffix!r}. Expected a path that ends in {files}, or, for a {bare}, one "
        f"without a suffix. Received: {path}."
    )


def recognise(path: Path) -> Format | None:
    """The row for a file by its suffix, or for a folder by the first file in it; None for anything else."""
    folders = [row for row in FORMATS if row.is_folder and (path / row.files[0]).is_file()]
    files = [row for row in FORMATS if not row.is_folder and path.suffix.lower() == row.suffix]
    return next(iter(folders + files), None)


def data_files(path: Path) -> re.Pattern:
    """A pattern for the names of files beside an artefact of one file that belong to it."""
    pattern = next((row.data_pattern for row in FORMATS if row.suffix == path.suffix.lower()), NOTHING)
    return re.compile(f"{re.escape(path.stem)}{pattern}", re.ASCII)


def list_data(path: Path) -> list[Path]:
    """The files beside an artefact of one file that belong to it."""
    return sorted(file for file in path.parent.iterdir() if data_files(path).fullmatch(file.name))


@contextlib.contextmanager
def raise_reading_errors(path, problem="is damaged"):
    """A context that turns errors of runtimes, and of readers of protocol buffers and flatbuffers, into ExportError."""
    try:
        yield
    except (ExportError, MissingPackageError):
        raise
    except Exception as error:
        raise ExportError(f"{path} {problem}: {error!s:.400}.") from error


def require_known_operations(format_name: str, path: Path) -> None:
    """Raises ExportError unless the artefact only computes, and refers only to its own files."""
    with raise_reading_errors(path):
        format_named(format_name).load_reader().check(Path(path))


def refuse(path: Path, what: str) -> None:
    """Raises an ExportError that the artefact was not opened because of `what` it has."""
    raise ExportError(f"{path} was not opened: it has {what}. Run it only if you trust whoever made it.")
