"""Runs a page of docs/errors/ as its reader does: what it takes as given, the lines that fail, the lines that work."""

import os
import re
import sys
import traceback
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from page_runner import Block, read_blocks, run_block

# The paragraph before the failing lines says so, and these may be followed by what they print.
FAILING = re.compile(
    r"\n([^\n]* fail(?:ed)?s?\b[^\n]*:\n\n```.*?^```\n(?:\n```text.*?^```\n)?)", re.DOTALL | re.MULTILINE
)
COMMENT = re.compile(r"^<!-- (fails with|needs): (.+) -->$", re.MULTILINE)


class Page(NamedTuple):
    """What a page says.

    Args:
        message: what the failing lines print, which is the title unless it is shown; "..." stands for anything.
        given, working: the blocks before and after the failing lines.
        fails_with, needs: modules with their versions: those of the failing lines, and those of the whole page.
    """

    title: str
    message: str
    given: list[Block]
    failing: Block
    working: list[Block]
    fails_with: list[str]
    needs: list[str]


def read_page(path: Path) -> Page:
    text = path.read_text("utf-8")
    title = text.partition("\n")[0].removeprefix("# ")
    given, lines, working = FAILING.split(text)
    (failing,) = read_blocks(lines)
    comments = dict(COMMENT.findall(text))
    requirements = [comments[name].split(", ") if name in comments else [] for name in ("fails with", "needs")]
    return Page(title, failing.shown or title, read_blocks(given), failing, read_blocks(working), *requirements)


def unmet(requirements: list[str]) -> list[str]:
    """Those of modules and versions, such as "tensorflow<2.17", that this environment does not meet."""
    distributions = metadata.packages_distributions()
    missing = []
    for text in requirements:
        wanted = Requirement(text)
        found = [metadata.version(name) for name in distributions.get(wanted.name, [])]
        if not any(wanted.specifier.contains(version, prereleases=True) for version in found):
            missing.append(text)
    return missing


def run_page(page: Page, folder: Path, with_failing: bool) -> None:
    """Runs the blocks in one namespace, as a notebook does; failing.txt holds what the failing lines print and raise.

    It changes the working folder, standard output and standard error, so it is for a process of its own.
    """
    os.chdir(folder)
    os.environ["KERAS_VIT_OFFLINE"] = "1"
    names = {"__name__": "__main__"}
    write_output_to("printed.txt")
    run_blocks(page.given, names)
    if with_failing:
        write_output_to("failing.txt")
        try:
            run_blocks([page.failing], names)
        except Exception:
            traceback.print_exc()
        write_output_to("printed.txt")
    run_blocks(page.working, names)


def write_output_to(name):
    output = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)


def run_blocks(blocks, names):
    for block in blocks:
        if block.language == "sh":
            run_block(block, Path.cwd())
        else:
            exec(compile(block.code, "<page>", "exec"), names)


def expect_failure(page):
    """Runs the failing lines alone, which must raise the message of the title."""
    try:
        run_blocks([page.failing], {"__name__": "__main__"})
    except Exception as error:
        assert page.message in str(error), error
    else:
        raise AssertionError(f"Nothing fails of: {page.title}")


if __name__ == "__main__":
    expect_failure(read_page(Path(sys.argv[1])))
