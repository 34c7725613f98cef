"""Names by templates: "blocks.{i}.norm1.weight" is "Transformer/encoderblock_{i}/LayerNorm_0/scale"."""

import functools
import re
import string

# What is added to the numbers in a name. Stages and units of a ResNet count from 0 in torch, from 1 in official names;
# blocks of the encoder count from 0 in both.
TO_OFFICIAL = {"i": 0, "b": 1, "u": 1}
TO_TORCH = {"i": 0, "b": -1, "u": -1}


@functools.cache
def compile_template(template):
    """A regular expression for a template's names, with a group for each placeholder.

    >>> compile_template("block{b}/unit{u:02d}").pattern
    'block(?P<b>[0-9]{1,9})/unit(?P<u>[0-9]{1,9})'
    """
    parts = string.Formatter().parse(template)  # (text, placeholder after it or None, its format, its conversion)
    return re.compile("".join(re.escape(text) + (f"(?P<{key}>[0-9]{{1,9}})" if key else "") for text, key, *_ in parts))


def translate(name, source, target, shift):
    """`name`, if it is one of template `source`'s, by template `target`; None if not.

    >>> translate("stages.0.blocks.9.conv2", "stages.{b}.blocks.{u}.conv2", "block{b}/unit{u:02d}/b", TO_OFFICIAL)
    'block1/unit10/b'
    """
    match = compile_template(source).fullmatch(name)
    if match is None:
        return None
    return target.format(**{key: int(number) + shift[key] for key, number in match.groupdict().items()})
