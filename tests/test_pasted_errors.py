"""docs/errors/: the message of each title comes from the failing lines, and the working lines work."""

import doctest
import multiprocessing
import re
from pathlib import Path

import pytest
from forking import forkserver
from pasted_pages import read_page, run_page, unmet

FOLDER = Path(__file__).parents[1] / "docs" / "errors"
PAGES = sorted(path for path in FOLDER.glob("*.md") if path.stem != "index")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def test_the_pages_are_short_and_the_index_has_all():
    rows = re.findall(r"^\| \[(.+)\]\((\w+)\.md\) \| .+ \|$", (FOLDER / "index.md").read_text("utf-8"), re.MULTILINE)
    assert [(name, title) for title, name in rows] == [(path.stem, read_page(path).title) for path in PAGES]
    for path in PAGES:
        text = re.sub(r"^```.*?^```$|^\|[^\n]*$", "", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
        assert len(text.split()) < 120, path.name
        assert re.search(r"^[\w-]*.* \d+\.\d+\.\d", text, re.MULTILINE), f"{path.name} names no version"


def comes(message, printed):
    """Whether the message is part of it, where "..." stands for anything."""
    return doctest.OutputChecker().check_output(f"...{message.strip().rstrip('.')}...", printed, FLAGS)


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page(path, tmp_path):
    page = read_page(path)
    if missing := unmet(page.needs):
        pytest.skip(f"needs {', '.join(missing)}")
    missing = unmet(page.fails_with)
    context = multiprocessing.get_context("spawn") if "jax" in page.needs else forkserver()
    process = context.Process(target=run_page, args=(page, tmp_path, not missing))
    (tmp_path / "tests").symlink_to(FOLDER.parents[1] / "tests")
    process.start()
    process.join()
    printed = (tmp_path / "printed.txt").read_text("utf-8")
    assert process.exitcode == 0, printed
    assert comes(page.working[-1].shown, printed)
    if missing:
        pytest.skip(f"the working lines work; the failing lines need {', '.join(missing)}")
    failed = (tmp_path / "failing.txt").read_text("utf-8")
    assert comes(page.message, failed)
