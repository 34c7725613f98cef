"""Makes text from files and servers safe to print, log and put into messages."""

import re
from collections.abc import Iterable

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


def quote_some(names: Iterable[object]) -> str:
    """The first five names in quotes, and the number of others.

    >>> quote_some("abcdefg")
    "'a', 'b', 'c', 'd', 'e' and 2 more"
    """
    names = list(names)
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(repr(name) for name in names[:5]) + more
