"""SIGTERM and Ctrl-C during a training: noted, so that the run can be saved and end after its step."""

import contextlib
import inspect
import os
import signal
import threading

SIGNALS = (signal.SIGTERM, signal.SIGINT)
PASSED_OVER = ("keras.src.callbacks", "keras_vit.training")


def find_training_frame():
    """The frame of the `fit` that has called a callback's method, seen from inside that method."""
    frame = inspect.currentframe()
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(PASSED_OVER):
        frame = frame.f_back
    return frame


def find_live_handler(number, frame):
    """The signal's handler, skipping handlers that a `fit` which has ended left behind."""
    handler = signal.getsignal(number)
    while isinstance(getattr(handler, "__self__", None), Signals) and not handler.__self__.is_training(frame):
        handler = handler.__self__.before[number]
    return handler


def print_from_handler(sentence):
    """Prints from a signal's handler, where `print` may not be called: it may itself have been interrupted."""
    with contextlib.suppress(OSError):
        os.write(2, sentence.encode())


class Signals:
    """Notes the first signal in `told`; `release` restores the handlers that were there before.

    An exception ends `fit` without calling its callbacks, so that `release` may never be called. Therefore a signal
    is noted only while the `fit` that called `catch` is among the callers of the interrupted code. Any other signal
    goes to the handler that was there before, and so does a second Ctrl-C. A signal that was noted but not acted on
    is raised again by `release`. `until` says what the run does first, for the user.

    >>> with Signals() as signals:  # doctest: +SKIP
    ...     while signals.told is None:
    ...         step()
    """

    def __init__(self):
        self.told = None
        self.until = "the first step, which is being compiled"
        self.before = {}
        self.frame = None
        self.caught = self.held = False

    def catch(self):
        """Begins to note signals, if this is the main thread: Python delivers signals to no other."""
        if self.held or threading.current_thread() is not threading.main_thread():
            return
        frame = find_training_frame()
        before = {number: find_live_handler(number, frame) for number in SIGNALS}
        self.caught, self.told, self.frame = True, None, frame
        for number, handler in before.items():
            # None is a handler of a C library, which Python cannot restore. A shell's background jobs ignore Ctrl-C.
            if handler is not None and not (number == signal.SIGINT and handler == signal.SIG_IGN):
                self.before[number] = handler
                signal.signal(number, self.note)

    def note(self, number, frame):
        if self.is_training(frame) and not (self.told and number == signal.SIGINT):
            self.told = number
            if number == signal.SIGINT:
                print_from_handler(
                    f"\nThe run stops and is saved after {self.until}. Press Ctrl-C again to stop at once.\n"
                )
            return
        self.told = None
        signal.signal(number, self.before[number])
        signal.raise_signal(number)

    def is_training(self, frame):
        """Whether the `fit` that called `catch` is still running: `frame`, which was interrupted, is in its stack."""
        while frame and frame is not self.frame:
            frame = frame.f_back
        return self.caught and (self.held or frame is not None)

    def release(self):
        if self.held or not self.caught:
            return
        told, self.told = self.told, None
        self.caught, self.frame = False, None
        for number, before in self.before.items():
            if signal.getsignal(number) == self.note:
                signal.signal(number, before)
        if told:
            signal.raise_signal(told)

    def __enter__(self):
        self.catch()
        self.held = True
        return self

    def __exit__(self, *error):
        self.held = False
        self.release()
