"""Text from elsewhere, such as class names, paths and tensor names, on its way to a terminal."""


def printable(text):
    """`text` with what a terminal would obey or not show, such as escapes, newlines and lone surrogates, escaped.

    >>> printable("cat\\x1b[31m")
    'cat\\\\x1b[31m'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))
