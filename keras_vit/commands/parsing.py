"""How a command line is read: a model as an argument or an option, and options of other packages."""

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
        if not context.resilient_parsing:  # of the shell's completion
            self.point_to_options(context, words)
        return super().parse_args(context, self.place_model(context, words))

    def point_to_options(self, context, words):
        known = {spelling: option.name for option in self.params for spelling in option.opts}
        for word in words:
            name = word.partition("=")[0]
            here = FOREIGN_NAMES.get(name.removeprefix("--")) if name.startswith("--") else None
            if name not in known and here in known.values():
                context.fail(f"No such option: {name}. Here it is called --{here.replace('_', '-')}.")

    def place_model(self, context, words):
        """The words with the model where `params` has it: `--model M` becomes the first argument, or the reverse."""
        kinds = {parameter.name: parameter.param_type_name for parameter in self.params}
        if "argument" in (kinds.get("model"), kinds.get("models")):
            return move_option("--model", words)
        if kinds.get("model") == "option" and "argument" not in kinds.values():
            given, rest, _ = self.make_parser(context).parse_args([*words])
            if rest and "model" not in given:
                return ["--model", rest[0], *(word for word in words if word is not rest[0])]
        return words


def move_option(name, words):
    """The words with the values of an option first, without its name.

    >>> move_option("--model", ["a.jpg", "--model", "runs/1", "--model=runs/2", "--out", "x"])
    ['runs/1', 'runs/2', 'a.jpg', '--out', 'x']
    """
    values, others, rest = [], [], iter(words)
    for word in rest:
        option, equals, value = word.partition("=")
        if option != name:
            others.append(word)
        else:
            values.append(value if equals else next(rest, word))
    return [*values, *others]
