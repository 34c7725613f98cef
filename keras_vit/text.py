"""Makes text from files and servers safe to print, log and put into messages."""

import re
import shlex

# Control characters, line separators, marks that turn the direction of writing, halves of surrogate pairs.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# From the end of the scheme: scheme://user:password@host/path?query#fragment; of two slashes paths keep one. A pattern
# for the scheme itself would be tried from every letter of a text without one: quadratic time, in strangers' names.
ADDRESS = re.compile(
    r"""(?P<slashes>(?<=[\w+.-])://|\bhttps?:/(?!/))(?:[^\s/?#]*@)?(?P<place>[^\s?#'"]*)(?:[?#][^\s'"]*)?"""
)
NO_PORT = re.compile(r"[^/\[]*:\d*[^\d/.,;:)\]]")


def printable(text: object) -> str:
    r"""`text` on one line, with the characters that would act on a terminal or in a log escaped.

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


def break_command(command: str, before: str = "", width: int = 80) -> list[str]:
    """The lines of a shell command, within `width` columns where its words allow that, which can be pasted as they are.

    >>> print(*break_command("keras-vit export runs/1 --to onnx tflite --out 'my files'", "$ ", 46), sep="\\n")
    $ keras-vit export runs/1 --to onnx tflite \\
        --out 'my files'
    """
    parts = []  # an option and its values are one
    for word in map(shlex.quote, shlex.split(command)):
        if parts and not word.startswith("--"):
            parts[-1] += f" {word}"
        else:
            parts.append(word)
    lines = [before + parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) + len("  \\") > width:
            lines[-1] += " \\"
            lines.append(" " * (4 + len(before) - len(before.lstrip())) + part)
        else:
            lines[-1] += f" {part}"
    return lines


def shorten(text: object, length: int) -> str:
    """`printable(text)`, if it is longer than `length` its beginning and an ellipsis.

    >>> shorten("Smileys & Emotion", 10)
    'Smileys &…'
    """
    text = printable(text)
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}…"
