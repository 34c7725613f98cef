"""The package's own errors: each message says what was received, what is expected and what to do."""

import difflib
from collections.abc import Iterable

from keras_vit.text import printable, without_secrets

LONGEST = 2000  # characters of a message


class KerasVitError(Exception):
    """Base of every error that this package raises for input it cannot use.

    Messages quote names and values of files and users, so control characters are escaped, what may be secret in an
    address is left out, and what is too long is cut.
    """

    def __init__(self, *args):
        super().__init__(*(sentence(arg) if isinstance(arg, str) else arg for arg in args))


def sentence(text):
    """`text` fit to be shown; of one that is longer than a message should be, the two ends."""
    text = printable(without_secrets(text))
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} [...] {text[-LONGEST // 4 :]}"


class ConfigError(KerasVitError, ValueError):
    """A model configuration that no model can have."""


class PreprocessingError(ConfigError, AttributeError):
    """The preprocessing of a model whose files do not state it."""


class UnknownNameError(KerasVitError, LookupError):
    """A name (model, tag, format) that no table holds; the message names the nearest ones."""


class CheckpointError(KerasVitError, ValueError):
    """A checkpoint that is missing, damaged, foreign, or does not fit the model."""


class DownloadError(KerasVitError, OSError):
    """A file that could not be fetched, or that is not what was promised."""


class ImageError(KerasVitError, ValueError):
    """A picture that cannot be read."""


class ExportError(KerasVitError, RuntimeError):
    """A model that a format cannot hold, or a place where no artefact can be written."""


class ParityError(ExportError):
    """An artefact whose outputs are not the model's."""


def describe_unknown(kind: str, name: object, known: Iterable[str]) -> str:
    """The sentence for a name that a table lacks: the nearest names, or all of them.

    >>> describe_unknown("model", "vit-b/16", ["ViT-B/16", "R50x1"])
    "There is no model 'vit-b/16'. Did you mean ViT-B/16?"
    """
    folded = {key.casefold(): key for key in known}
    near = [folded[key] for key in difflib.get_close_matches(str(name).casefold(), folded, n=3, cutoff=0.4)]
    hint = f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(folded.values())}."
    return f"There is no {kind} {name!r}. {hint}"


def require_tensorflow(what: str, error: type[KerasVitError] = ConfigError) -> None:
    """Raises `error` unless Keras' backend is TensorFlow; what: the part of the package that needs it."""
    import keras

    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise error(
            f"{what} works on Keras' TensorFlow backend alone. Received: the backend {backend!r}. "
            "Set KERAS_BACKEND=tensorflow before Keras is imported."
        )
