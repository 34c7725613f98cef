"""Printing and logging of the commands: names are shown as they are, neither as markup nor obeyed by a terminal."""

import logging

import rich.console

from keras_vit.text import break_command, printable, without_secrets


class Console(rich.console.Console):
    """A console of `rich` that shows every text as it is, with control characters escaped.

    >>> Console().print("cat [brown] :smile: \\x1b[31m")
    cat [brown] :smile: \\x1b[31m
    """

    def __init__(self, **options):
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text, **options):
        return super().render_str(printable(text), **options)

    def print_command(self, command: str, before: str = "  ") -> None:
        """Prints a shell command behind `before`, broken so that it can be pasted."""
        for line in break_command(command, before):
            self.print(line, soft_wrap=True)


class OneSafeLine(logging.Filter):
    """Makes each message of a logger one line, without control characters and secrets."""

    def filter(self, record):
        record.msg, record.args = printable(without_secrets(record.getMessage())), ()
        return True


log = logging.getLogger("keras_vit")
log.addFilter(OneSafeLine())


def say(sentence: str, one_line: bool = True) -> None:
    """Prints a sentence to the terminal: on one line, so that a path in it can be copied, or broken at its width."""
    Console().print(sentence, soft_wrap=one_line)
