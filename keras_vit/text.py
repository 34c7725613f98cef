"""Text of others (names, paths, servers' phrases) as it may reach a terminal or a log."""


def printable(text):
    r"""The text with control characters, line breaks, directional marks and lone surrogates as escapes.

    >>> printable("cat\x1b[31m")
    'cat\\x1b[31m'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))
