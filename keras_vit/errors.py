"""The package's own errors: each message says what was received, what is expected and what to do."""


class KerasVitError(Exception):
    """Base of every error that this package raises for input it cannot use."""


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
