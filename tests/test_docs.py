"""The pages of docs/ that print what they say: each runs as it stands."""

import doctest
import re
from pathlib import Path

import pytest

from keras_vit.zoo.names.other_names import exact_name
from keras_vit.zoo.names.registry import resolve
from keras_vit.zoo.names.rows import PublicCheckpoint

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ["features.md"]


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_a_page_prints_what_it_says(name):
    text = (DOCS / name).read_text("utf-8")
    test = doctest.DocTestParser().get_doctest(text, {}, name, name, 0)
    assert len(test.examples) > 10
    said = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(test, out=said.append)
    assert not said, "".join(said)


def test_nobody_is_sent_to_a_package_that_is_not_published():
    """setup.cfg's name is nobody's on PyPI yet: whoever takes it could be installed in our place."""
    root = DOCS.parent
    files = [root / "README.md", *DOCS.glob("*.md"), *root.glob("examples/**/*.py"), *root.glob("examples/**/*.ipynb")]
    files += [path for folder in ("keras_vit", "zoo", "export") for path in (root / folder).rglob("*.py")]
    assert len(files) > 200
    assert not [path for path in files if "keras-vit-zoo" in path.read_text("utf-8")]


def test_the_names_of_other_packages_are_answered_as_the_page_says():
    text = (DOCS / "coming_from.md").read_text("utf-8")
    named = re.findall(r'zoo\.load\("([^"]+)"', text)
    assert len(named) >= 10
    for name in named:
        assert name.endswith(".safetensors") or name.endswith("...") or isinstance(resolve(name), PublicCheckpoint)
    asked, answered = re.search(r"keras-vit info (\S+)\n.*called (\S+)\.\n", text).groups()
    assert exact_name(asked) == answered
