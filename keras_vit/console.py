"""Printing and logging of the commands: names are shown literally, not as markup or control characters."""

import logging
from collections.abc import Iterable

import rich.console
import rich.table

from keras_vit.errors import printable, without_secrets


def make_table(title: str | None, text: str, *numbers: str) -> rich.table.Table:
    """A table with a column of text, folded if it is too wide, and columns of numbers."""
    table = rich.table.Table(box=None, header_style="bold", title=title, title_justify="left")
    table.add_column(text, overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", overflow="fold")
    return table


def list_pairs(pairs: Iterable[tuple[str, str]], title: str | None = None, style: str = "") -> rich.table.Table:
    """A table of pairs (name in the given style, description); long ones are folded."""
    table = rich.table.Table(box=None, show_header=False, padding=(0, 2, 0, 0), title=title, title_justify="left")
    table.add_column(style=style)
    table.add_column(overflow="fold")
    for name, meaning in pairs:
        table.add_row(name, meaning)
    return table


class Console(rich.console.Console):
    """A console of `rich` that shows every text literally, with control characters escaped.

    >>> Console().print("cat [brown] :smile: \\x1b[31m")
    cat [brown] :smile: \\x1b[31m
    """

    def __init__(self, **options):
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text, **options):
        return super().render_str(printable(text), **options)


class OneSafeLine(logging.Filter):
    """Prints each message of a logger on one line, without control characters and secrets."""

    def filter(self, record):
        record.msg, record.args = printable(without_secrets(record.getMessage())), ()
        return True


log = logging.getLogger("keras_vit")
log.addFilter(OneSafeLine())


def say(sentence: str, one_line: bool = True) -> None:
    """Prints a sentence: on one line, so that a path or command can be copied, or wrapped at the terminal's width."""
    Console().print(sentence, soft_wrap=one_line)
