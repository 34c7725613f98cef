"""Every `keras-vit ...` that README.md, docs/ and examples/ write is a command line that the parser accepts."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from keras_vit import cli

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES += sorted((ROOT / "zoo" / "weights").glob("*.md"))
PAGES += [path for ending in ("py", "ipynb") for path in sorted((ROOT / "examples").rglob(f"*.{ending}"))]
LINE = re.compile(
    r"^(?:    |\$ |    \$ |    pip .*&& |The same from the shell: )?(keras-vit [a-z]+(?: .*)?)$", re.MULTILINE
)
IN_PROSE = re.compile(r"`(keras-vit [^`\n]*)`")
COMMANDS = {name: cli.load_command(name) for name in cli.COMMANDS}


def split_commands(line):
    """The arguments of each keras-vit of a shell line."""
    words, command = shlex.split(line.replace("\\n", ""), comments=True), []
    for word in [*words, "&&"]:
        if word not in ("&&", "|"):
            command.append(word)
        elif command:
            if command[0] == "keras-vit":
                yield command[1:]
            command = []


def parse_whole(line):
    """Raises a usage error for options, values or arguments that the command does not take, or that lack."""
    for name, *arguments in split_commands(line):
        COMMANDS[name].make_context(name, arguments)


def parse_part(line):
    """Raises a usage error for options that the command does not have; what is required may lack."""
    for name, *arguments in split_commands(line):
        if name in COMMANDS:
            command = COMMANDS[name]
            command.make_parser(typer.Context(command)).parse_args(arguments)
        else:
            assert name.startswith("--install-completion"), line


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_the_command_lines_of_a_page_are_accepted(page):
    text = re.sub(r"\\\n\s*", "", page.read_text("utf-8"))
    for line in LINE.findall(text):
        parse_whole(line)
    for line in IN_PROSE.findall(text):
        parse_part(line)


def test_command_lines_are_found():
    found = [line for page in PAGES for line in LINE.findall(page.read_text("utf-8"))]
    assert len(found) > 30


MISTAKES = {
    "keras-vit predict a.jpg --modle x": "--modle",
    "keras-vit verify": "Missing",
    "keras-vit export x --to onxx": "'onxx' is not one of",
}


@pytest.mark.parametrize(("line", "said"), MISTAKES.items())
def test_a_line_with_a_mistake_is_found(line, said):
    with pytest.raises(Exception, match=said):
        parse_whole(line)
    if said.startswith("--"):
        with pytest.raises(Exception, match=said):
            parse_part(line)
