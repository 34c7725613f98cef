"""Reads command lines, and completes the values of options in the shell.

The tables of models are imported only for completion.
"""

import glob
import os
from collections.abc import Callable, Iterable

import typer

from keras_vit.errors import FOREIGN_NAMES


class Word(str):
    """A word of a command line, compared by identity and not by its text."""


class Command(typer.core.TyperCommand):
    """A command that takes its model as its first argument and as `--model` alike.

    If an option is known from another package, the error says what it is called here.
    """

    def parse_args(self, context, arguments):
        words = [Word(argument) for argument in arguments]
        if not context.resilient_parsing:  # unless the shell completes
            self.point_to_options(context, words)
            refuse_empty(context, words)
        return super().parse_args(context, self.place_model(context, words))

    def point_to_options(self, context, words):
        known = {spelling: option.name for option in self.params for spelling in option.opts}
        for word in words:
            name = word.partition("=")[0]
            here = FOREIGN_NAMES.get(name.removeprefix("--")) if name.startswith("--") else None
            if here and name not in known and here in known.values():
                context.fail(f"No such option: {name}. Here it is called --{here.replace('_', '-')}.")

    def place_model(self, context, words):
        """Moves the model to where `params` has it: `--model M` becomes the first argument, or the reverse."""
        kinds = {parameter.name: parameter.param_type_name for parameter in self.params}
        if "argument" in (kinds.get("model"), kinds.get("models")):
            return move_model(words)
        if kinds.get("model") == "option" and "argument" not in kinds.values():
            given, rest, _ = self.make_parser(context).parse_args([*words])
            if rest and "model" not in given:
                return ["--model", rest[0], *(word for word in words if word is not rest[0])]
        return words


def refuse_empty(context, words):
    """Fails for an empty word, which would stand for the current folder or for an option that is not given."""
    for before, word in zip([f"keras-vit {context.info_name}", *words], words, strict=False):
        if not word or (word.startswith("--") and word.endswith("=")):
            context.fail(f"There is nothing after {(word or before).rstrip('=')}. Is a variable of the shell not set?")


def move_model(words):
    """Moves the values of `--model` to the front, without its name.

    >>> move_model(["a.jpg", "--model", "runs/1", "--model=runs/2", "--out", "x"])
    ['runs/1', 'runs/2', 'a.jpg', '--out', 'x']
    """
    values, others, rest = [], [], iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if option != "--model":
            others.append(word)
        else:
            values.append(value if equals else next(rest, word))
    return [*values, *others]


def select(names, incomplete):
    """The names that begin with the typed text, in upper or lower case."""
    return [name for name in names if name.casefold().startswith(incomplete.casefold())]


def complete_from(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Makes the completion of an option's value by these names.

    >>> complete_from(["light1", "strong1", "strong2"])("Strong")
    ['strong1', 'strong2']
    """
    known = list(names)

    def complete(incomplete: str) -> list[str]:
        return select(known, incomplete)

    return complete


def complete_model(incomplete: str) -> list[str]:
    """The variants and checkpoints whose names begin so.

    >>> complete_model("vit-h")
    ['ViT-H/14', 'ViT-H/14:i21k']
    """
    from keras_vit.models.variants import VARIANTS
    from keras_vit.zoo.names.rows import checkpoints

    return select([*VARIANTS, *(row.name for row in checkpoints())], incomplete)


def complete_place(incomplete: str) -> list[str]:
    """Does what `complete_model` does, and adds files and folders whose paths begin so: a run, a checkpoint, a bundle.

    >>> complete_place("vit-h")
    ['ViT-H/14', 'ViT-H/14:i21k']
    """
    paths = sorted(glob.glob(glob.escape(incomplete) + "*"))
    folders = (path + "/" if os.path.isdir(path) else path for path in paths)
    return [*complete_model(incomplete), *folders]
