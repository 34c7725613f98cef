"""SIGTERM and Ctrl-C while a training runs: noted, so that it can save and leave after its step."""

import contextlib
import inspect
import os
import signal
import threading

SIGNALS = (signal.SIGTERM, signal.SIGINT)
PASSED_OVER = ("keras.src.callbacks", "keras_vit.training")


def training_frame():
    """The frame of the `fit` that has called a callback's method, from inside of that method."""
    frame = inspect.currentframe()
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(PASSED_OVER):
        frame = frame.f_back
    return frame


class Signals:
    """Notes the first signal in `told`; `release` puts the handlers back that were there before.

    An exception ends `fit` without a word to its callbacks. So a signal that comes when the `fit` that called `catch`
    is no longer among the callers of what is interrupted is not noted, it goes to the handler that was there before; so
    does a second Ctrl-C. A signal that was noted and that nobody has acted on comes again on release.

    >>> with Signals() as signals:
    ...     while signals.told is None:
    ...         step()
    """

    def __init__(self):
        self.told = None
        self.before = {}
        self.frame = None
        self.caught = self.held = False

    def catch(self):
        """Begins to note signals, if this is the main thread, which alone gets them."""
        if self.held or threading.current_thread() is not threading.main_thread():
            return
        frame = training_frame()
        before = {number: living(number, frame) for number in SIGNALS}
        self.caught, self.told, self.frame = True, None, frame
        for number, handler in before.items():
            # None is a handler of a C library, which Python cannot put back.
            if handler is not None and not (number == signal.SIGINT and handler == signal.SIG_IGN):
                self.before[number] = handler
                signal.signal(number, self.note)

    def note(self, number, frame):
        if self.trains(frame) and not (self.told and number == signal.SIGINT):
            self.told = number
            if number == signal.SIGINT:
                say("\nThe run stops after this step, and is saved. Ctrl-C once more stops it at once.\n")
            return
        self.told = None
        signal.signal(number, self.before[number])
        signal.raise_signal(number)

    def trains(self, frame):
        """Whether the `fit` goes on that called `catch`: it is `frame`, which is interrupted, or has called it."""
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


def living(number, frame):
    """The signal's handler, past those that a `fit` has left which is over."""
    handler = signal.getsignal(number)
    while isinstance(getattr(handler, "__self__", None), Signals) and not handler.__self__.trains(frame):
        handler = handler.__self__.before[number]
    return handler


def say(sentence):
    """Prints from a signal's handler, where print may not be called while it prints."""
    with contextlib.suppress(OSError):
        os.write(2, sentence.encode())
