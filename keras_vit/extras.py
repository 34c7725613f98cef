"""If a package from an extra of setup.cfg is missing, the error names the extra.

Code imports such a package where it uses it, without a check. Python asks `ExtrasFinder` for modules that it finds
nowhere else. Imports by other packages fail as usual, so that these can still do without.
"""

import importlib.abc
import importlib.util
import inspect
import sys
from typing import NoReturn

from keras_vit.errors import MissingPackageError, describe_install

EXTRAS = {  # module: its title, and an extra that installs it
    "tensorflow": ("TensorFlow", "cpu"),
    "jax": ("JAX", "jax"),
    "tensorflow_datasets": ("tensorflow-datasets", "data"),
    "sklearn": ("scikit-learn", "data"),
    "imagehash": ("imagehash", "data"),
    "pyarrow": ("PyArrow", "data"),
    "scipy": ("SciPy", "train"),
    "psutil": ("psutil", "train"),
    "matplotlib": ("matplotlib", "plots"),
    "faiss": ("faiss-cpu", "search"),
    "onnxscript": ("onnxscript", "export"),
    "tf2onnx": ("tf2onnx", "export"),
    "ai_edge_litert": ("ai-edge-litert", "export"),
    "litert_quantizer": ("litert-quantizer", "export"),
    "openvino": ("OpenVINO", "openvino"),
    "litert_converter": ("litert-converter", "tflite"),
}
# Keras imports its backend: a second advice if that is missing
OTHERWISE = {
    "tensorflow": ", or set KERAS_BACKEND=jax where JAX is installed, to predict, load, save and export to ONNX",
    "jax": ", or unset KERAS_BACKEND where TensorFlow is installed",
}


def raise_missing(module: str, needed_by: str, otherwise: str = "") -> NoReturn:
    title, extra = EXTRAS[module]
    error = MissingPackageError(
        f"{needed_by} needs {title}, which is not installed. Install it: {describe_install(extra)}{otherwise}."
    )
    error.name = module
    raise error


def require(module: str, needed_by: str) -> None:
    """Raises MissingPackageError unless a module of `EXTRAS` is installed; for imports in another process."""
    if importlib.util.find_spec(module) is None:
        raise_missing(module, needed_by)


def find_importer():
    """The name of the module whose `import` statement is running."""
    frame = inspect.currentframe()
    while frame and frame.f_code.co_filename.startswith((__file__, "<frozen importlib._bootstrap")):
        frame = frame.f_back
    return frame.f_globals.get("__name__", "") if frame else ""


class ExtrasFinder(importlib.abc.MetaPathFinder):
    """Finds no module; raises MissingPackageError if this package imports one, or Keras its backend."""

    def find_spec(self, name, path=None, target=None):
        if name in EXTRAS:
            importer = find_importer()
            if importer.startswith("keras_vit."):
                raise_missing(name, ".".join(importer.split(".")[:2]))
            if importer.startswith("keras.") and name in OTHERWISE:
                raise_missing(name, f"Keras' backend {name!r}", OTHERWISE[name])
        return None


def register() -> None:
    sys.meta_path.append(ExtrasFinder())
