"""predict.py of a bundle: `predict_script` and the functions that load the bundle's formats."""

import ast
from collections.abc import Sequence
from pathlib import Path

from keras_vit.export.formats import format_named

SCRIPT = Path(__file__).with_name("predict_script.py")
PLACE = "LOADERS = {}\nPACKAGES = {}"


def predict_source(formats: Sequence[str]) -> str:
    """The text of predict.py for artefacts of these formats, by name."""
    functions = [loader_source(format_named(name)) for name in formats]
    loaders = ", ".join(f'"{name}": load_{name}' for name in formats)
    packages = ", ".join(f'"{name}": "{format_named(name).package}"' for name in formats)
    text = SCRIPT.read_text("utf-8")
    return text.replace(PLACE, "\n\n\n".join([*functions, f"LOADERS = {{{loaders}}}\nPACKAGES = {{{packages}}}"]), 1)


def loader_source(form):
    """The text of the function load_NAME of the format's reading.py."""
    text = form.reading_file().read_text("utf-8")
    functions = (node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef))
    function = next(node for node in functions if node.name == f"load_{form.name}")
    return ast.get_source_segment(text, function) or ""
