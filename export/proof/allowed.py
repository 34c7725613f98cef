"""Looks at an artefact from elsewhere before any runtime opens it: it may only compute.

What may be in a file of each format stands in the format's own allowed.py.
"""

from pathlib import Path

from keras_vit.errors import ExportError
from keras_vit.export.formats import format_named

ADVICE = "Run it only if you trust whoever made it."


def require_known_operations(format_name, path):
    """Raises ExportError unless the artefact only computes, and refers to no file beyond its own."""
    try:
        format_named(format_name).load_module("allowed").check(Path(path))
    except ImportError as error:
        raise ExportError(f"{path} needs {error.name}, which is not installed.") from error
    except ExportError:
        raise
    except Exception as error:  # whatever the readers of protocol buffers and flatbuffers raise for damaged files
        raise ExportError(f"{path} is damaged: {error!s:.400}.") from error


def refuse(path, what):
    raise ExportError(f"{path} was not opened: it has {what}. {ADVICE}")
