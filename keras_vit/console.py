"""What the command prints and logs: names in it are data, neither markup nor what a terminal obeys."""

import logging

import rich.console

from keras_vit.text import printable, without_secrets


class Console(rich.console.Console):
    """A rich console that shows every text as it is, and what would act on a terminal as an escape.

    >>> Console().print("cat [brown] :smile: \\x1b[31m")
    cat [brown] :smile: \\x1b[31m
    """

    def __init__(self, **options):
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text, **options):
        return super().render_str(printable(text), **options)


class Printable(logging.Filter):
    """Makes the messages of a logger one line each, without secrets."""

    def filter(self, record):
        record.msg, record.args = printable(without_secrets(record.getMessage())), ()
        return True


log = logging.getLogger("keras_vit")
log.addFilter(Printable())
