"""What can end a run."""

from keras_vit.errors import KerasVitError


class RunError(KerasVitError, RuntimeError):
    """A run folder that cannot be used, or a run that cannot go on."""


class NotFiniteError(RunError):
    """A loss or a weight that is not finite. `step`: the update whose loss it was; `kept`: the last good step."""

    def __init__(self, message, step, kept):
        super().__init__(message)
        self.step = step
        self.kept = kept


class Preempted(SystemExit):
    """The run was told to stop (SIGTERM) and can be resumed from `step`; ends the process with status 143."""

    def __init__(self, step):
        super().__init__(143)
        self.step = step


class Interrupted(KeyboardInterrupt):
    """The run was told to stop (Ctrl-C) and can be resumed from `step`; the command then ends with status 130."""

    def __init__(self, step):
        super().__init__(f"saved at step {step}")
        self.step = step
