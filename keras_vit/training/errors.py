"""Errors and interruptions of a training. Imports neither Keras nor TensorFlow."""

from keras_vit.errors import KerasVitError


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
