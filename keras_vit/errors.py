"""The package's own errors, each with what was received, what was expected and what to do; and text safe to print."""

import difflib
import numbers
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

# Control characters, line separators, marks that change the direction of writing, halves of surrogate pairs.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# From the end of the scheme: scheme://user:password@host/path?query#fragment; a `Path` keeps one of the two slashes. A
# pattern with the scheme would be tried from every letter of a text without one: quadratic time for foreign names.
ADDRESS = re.compile(
    r"""(?P<slashes>(?<=[\w+.-])://|\bhttps?:/(?!/))(?:[^\s/?#]*@)?(?P<place>[^\s?#'"]*)(?:[?#][^\s'"]*)?"""
)
NO_PORT = re.compile(r"[^/\[]*:\d*[^\d/.,;:)\]]")


def printable(text: object) -> str:
    r"""`text` on one line, with characters escaped that would act on a terminal or in a log.

    >>> printable("a\n\x1b[31mb")
    'a\\n\\x1b[31mb'
    """
    return UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), str(text))


def without_secrets(text: object) -> str:
    """`text` without the passwords, queries and fragments of the addresses in it.

    >>> without_secrets("from https://alice:secret@host/m.keras?signature=1 and https://alice:sec/ret@host")
    'from https://host/m.keras and https://...'
    """
    return ADDRESS.sub(
        lambda found: found["slashes"] + ("..." if NO_PORT.match(found["place"]) else found["place"]), str(text)
    )


def shorten(text: object, length: int) -> str:
    """`printable(text)`, cut to its beginning and an ellipsis if it is longer than `length`.

    >>> shorten("Smileys & Emotion", 10)
    'Smileys &…'
    """
    text = printable(text)
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}…"


def quote_some(names: Iterable[object], quote: Callable[[object], str] = repr) -> str:
    """The first five names, in quotes or as `quote` writes them, and the number of others.

    >>> quote_some("abcdefg")
    "'a', 'b', 'c', 'd', 'e' and 2 more"
    """
    names = list(names)
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(map(quote, names[:5])) + more


LONGEST = 2000  # characters of a message
LARGEST = 2**31 - 1  # of any size or count, as for TensorFlow's dimensions

# {name in other packages: name here, or a sentence on what to do}
FOREIGN_NAMES = {
    "lr": "learning_rate",
    "weights": "model",  # as an option of a command; `zoo.load` has an argument of that name
    "imgsz": "image_size",
    "include_top": "num_classes=0 leaves the head out.",
    "classifier_activation": "Models return logits; apply keras.ops.softmax to them.",
    "pretrained": "Pre-trained weights are the default; weights=None gives random ones.",
    "load": "It is keras_vit.zoo.load.",
    "load_model": "It is keras_vit.zoo.load.",
    "create_model": "It is keras_vit.zoo.load.",
    "from_preset": "It is keras_vit.zoo.load.",
    "from_pretrained": "It is keras_vit.zoo.load.",
    "list_models": "It is keras_vit.zoo.list.",
    **{
        f"resnet{depth}{version}": f"The ResNet nearest to it is BiT's {name}."
        for depth, name in ((50, "R50x1"), (101, "R101x1"), (152, "R152x2"))
        for version in ("", "v2")
    },
}


def make_presentable(text):
    """Makes `text` safe to print; of a text longer than LONGEST only both ends are kept."""
    text = printable(without_secrets(text))
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} [...] {text[-LONGEST // 4 :]}"


class KerasVitError(Exception):
    """Base of all errors that this package raises for input it cannot use.

    Messages quote names and values from files and users. So control characters are escaped, possible secrets in
    addresses are left out, and the middle of a long message is cut out.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*(make_presentable(arg) if isinstance(arg, str) else arg for arg in args))


class ConfigError(KerasVitError, ValueError):
    """An invalid model configuration: an invalid argument, or arguments that contradict each other."""


class PreprocessingError(ConfigError, AttributeError):
    """The preprocessing of a model is unknown, because its files do not state it."""


class UnknownNameError(KerasVitError, LookupError):
    """A name (of a model, tag or format) is unknown; the message suggests the nearest ones."""


class CheckpointError(KerasVitError, ValueError):
    """A checkpoint is missing, damaged, of another program, or does not fit the model."""


class RecordError(KerasVitError, ValueError):
    """A JSON file of this package is missing, damaged, or not what it should be."""


class DownloadError(KerasVitError, OSError):
    """A file could not be fetched, or is not the one that was expected."""


class UploadError(KerasVitError, OSError):
    """A folder could not be uploaded."""


class ImageError(KerasVitError, ValueError):
    """An image cannot be read."""


class DataError(KerasVitError, ValueError):
    """Images or labels are unfit for training or evaluation, or a dataset or split does not exist."""


class RunError(KerasVitError, RuntimeError):
    """A run's folder cannot be used, or a run cannot continue."""


class NotFiniteError(RunError):
    """A loss or weight is NaN or infinite. `step`: the update of its detection; `kept`: the last good step."""

    def __init__(self, message: str, step: int = 0, kept: int = 0):  # pickle gives the message alone
        super().__init__(message)
        self.step = step
        self.kept = kept


class Preempted(SystemExit):
    """The run was stopped by SIGTERM and can be resumed from `step`; ends the process with status 143."""

    def __init__(self, step: int):
        super().__init__(143)
        self.step = step


class Interrupted(KeyboardInterrupt):
    """The run was stopped by Ctrl-C and can be resumed from `step`; the command then ends with status 130."""

    def __init__(self, step: int):
        super().__init__(f"saved at step {step}")
        self.step = step


class MissingPackageError(KerasVitError, ModuleNotFoundError):
    """A package that an extra of this one brings is not installed; the message names the extra."""


class ExportError(KerasVitError, RuntimeError):
    """A model cannot be exported to a format, or an artefact cannot be written to a place."""


class ParityError(ExportError):
    """The outputs of an exported artefact differ from the model's."""


def point_to(name: str, known: Iterable[str] = ()) -> str | None:
    """A sentence on what to use for a name of other packages; None if there is nothing, or its name is not `known`.

    >>> point_to("lr", ["learning_rate"]), point_to("lr"), point_to("include_top")
    ('Here it is called learning_rate.', None, 'num_classes=0 leaves the head out.')
    """
    here = FOREIGN_NAMES.get(name.casefold())
    if here and here.isidentifier():
        return f"Here it is called {here}." if here in known else None
    return here


def point_from(find: Callable[[str], object]) -> Callable[[str], object]:
    """A module's `__getattr__` whose error says what to use for a name of other packages."""

    def find_or_point(name):
        try:
            return find(name)
        except AttributeError as error:
            if here := point_to(name):
                raise AttributeError(f"{error}. {here}") from None
            raise

    return find_or_point


def describe_unknown(kind: str, name: object, known: Iterable[str], otherwise: str | None = None) -> str:
    """A sentence on an unknown name: what it is called here, the nearest known ones, or `otherwise`, by default all.

    >>> describe_unknown("model", "vit-b/16", ["ViT-B/16", "R50x1"])
    "There is no model 'vit-b/16'. Did you mean ViT-B/16?"
    >>> describe_unknown("split", "trainn", ["train", "training", "trains"])
    "There is no split 'trainn'. Did you mean train, training or trains?"
    """
    folded = {key.casefold(): key for key in known}
    if here := point_to(str(name), folded.values()):
        return f"There is no {kind} {name!r}. {here}"
    near = [folded[key] for key in difflib.get_close_matches(str(name).casefold(), folded, n=3, cutoff=0.4)]
    nearest = " or ".join(filter(None, (", ".join(near[:-1]), *near[-1:])))
    hint = f"Did you mean {nearest}?" if near else otherwise or f"Known: {', '.join(folded.values())}."
    return f"There is no {kind} {name!r}. {hint}"


def describe_install(extra: str) -> str:
    """The command to install this package with an extra of setup.cfg; until it is published, from a clone.

    >>> describe_install("cpu")
    "pip install '.[cpu]' in a clone of Keras ViT's repository"
    """
    return f"pip install '.[{extra}]' in a clone of Keras ViT's repository"


SHARED_FOLDER = (
    "Another project, keras-vit on PyPI, has files in the same folder keras_vit, and each of the two overwrites and "
    "removes files of the other. Run pip uninstall -y keras-vit, then install this one again, with --force-reinstall."
)


class Range(NamedTuple):
    """The range of an argument, from `least` to `most`, and its description in errors and documentation.

    >>> [value in COUNT for value in (3, 3.0, True, 0)]
    [True, False, False, False]
    """

    least: float
    most: float
    text: str
    whole: bool = False

    def __contains__(self, value: object) -> bool:
        kind = numbers.Integral if self.whole else numbers.Real
        return isinstance(value, kind) and not isinstance(value, bool) and bool(self.least <= value <= self.most)  # type: ignore[operator]


COUNT = Range(1, LARGEST, "positive: a whole number below 2 ** 31", whole=True)
POSITIVE = Range(2.0**-126, 3.4e38, "positive: a number in the range of float32")  # in which a model trains


def require_within(allowed: Range, **values: Any) -> None:
    """Raises ConfigError unless each value is in the range, or None."""
    for name, value in values.items():
        if value is not None and value not in allowed:
            raise ConfigError(f"{name} must be {allowed.text}. Received: {name}={value!r}.")


def require_backend(what: str, *backends: str, error: type[KerasVitError] = ConfigError) -> None:
    """Raises `error` unless Keras' backend is one of these; `what` names the part of the package that needs it."""
    import keras

    backend = keras.backend.backend()
    if backend not in backends:
        raise error(
            f"{what} works on Keras' backend {' or '.join(backends)}. Received: the backend {backend!r}. "
            f"Set KERAS_BACKEND={backends[0]} before Keras is imported."
        )
