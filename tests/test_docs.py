"""The pages of docs/ that print what they say: each runs as it stands."""

import csv
import doctest
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import start_page

from keras_vit import zoo
from keras_vit.export.proof import mixture
from keras_vit.export.proof.parity import KINDS
from keras_vit.zoo.names.registry import exact_name, resolve
from keras_vit.zoo.names.rows import PublicCheckpoint

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ["features.md"]


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_a_page_prints_what_it_says(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").symlink_to(DOCS.parent / "tests")
    text = (DOCS / name).read_text("utf-8")
    test = doctest.DocTestParser().get_doctest(text, {}, name, name, 0)
    assert len(test.examples) > 10
    said = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(test, out=said.append)
    assert not said, "".join(said)


def test_the_costs_of_the_first_page_are_those_of_its_script():
    page = start_page.PAGE.read_text("utf-8")
    assert start_page.MARKED.search(page)[0] == start_page.write_table()


def test_the_computed_costs_of_the_first_page():
    """ViT-B/16 by hand: 196 patches of 768 numbers, 12 blocks of 768 and 3,072, 469 batches of 32 images."""
    tokens, width = 197, 768
    block = tokens * (4 * width**2 + 2 * 3072 * width) + 2 * tokens**2 * width
    operations = 2 * (196 * 768 * width + 12 * block + 1000 * width)
    seconds = 3 * operations * 469 * 32 / (0.3 * 197e12)
    (row,) = [line.split(" | ") for line in start_page.write_table().splitlines() if "`ViT-B/16`" in line]
    assert row[5] == f"~{math.ceil(seconds / 60)} min"
    seconds_of_two_cores = 3 * operations * 469 * 32 / 1.56665e11  # ViT-S/16's rate in recorded.csv
    assert row[2] == f"~{math.ceil(seconds_of_two_cores / 60) / 60:.1f} h"


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


def test_the_rates_of_fine_tuning_are_those_of_their_trainings():
    cells = {}  # {(model, data): images trained on and held out, accuracies at the page's rates}
    with open(DOCS / "finetuning_rates.csv", newline="") as file:
        for line in csv.DictReader(file):
            row = cells.setdefault((line["model"], line["data"]), [line["images"], line["held_out"]])
            row.append(f"{100 * float(line['accuracy']):.1f}")
    text = (DOCS / "finetuning.md").read_text("utf-8")
    rows = re.findall(r"^\| ((?:R20x0.5|ViT-Mini/4):.*) \|$", text, re.MULTILINE)
    assert rows == [" | ".join([*names, *row]) for names, row in cells.items()]


def test_the_bounds_of_exports_are_those_of_the_page():
    found = {}
    for kind in KINDS:
        bounds = tuple(f"{bound:g}" for bound in (kind.max_rel_diff, kind.cosine, kind.top1_regret))
        found.setdefault(bounds, []).append(f'`"{kind.name}"`' if kind.name else "none")
    text = (DOCS / "deploy.md").read_text("utf-8")
    for bounds, names in found.items():
        assert f"| {', '.join(names)} | {' | '.join(bounds)} |" in text
    text = " ".join((DOCS / "exports_in_depth.md").read_text("utf-8").split())
    whole, convolutions = mixture.BOUND, mixture.BOUND_OF_CONVOLUTIONS
    assert f"cosine must be at least {whole.cosine}, and the best class may change for an estimated" in text
    assert f"estimated {100 * whole.changed:g} % of the images at most" in text
    assert f"with bounds of {convolutions.cosine} and {100 * convolutions.changed:g} %:" in text
    assert f"(at most {mixture.MOST_GROUPS} groups), alone on each rung above it, on {mixture.FEW} images" in text


def find_anchors(text):
    """GitHub's names of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_to_pages_and_headings():
    root = DOCS.parent
    pages = [*root.glob("*.md"), *DOCS.rglob("*.md")]
    links = [
        (page, *link) for page in pages for link in re.findall(r"\]\(([\w./-]*)#?([\w-]*)\)", page.read_text("utf-8"))
    ]
    assert len(links) > 100
    for page, path, heading in links:
        target = page.parent / path if path else page
        assert target.exists(), (page, path)
        assert not heading or heading in find_anchors(target.read_text("utf-8")), (page, path, heading)


@pytest.mark.slow
def test_the_first_lines_of_the_readme_run_without_a_network(tmp_path):
    """The block as it stands, in a process whose downloads would be refused."""
    code = re.search(r"```python\n(.*?)```", (DOCS.parent / "README.md").read_text("utf-8"), re.DOTALL)[1]
    environment = {**os.environ, "KERAS_VIT_OFFLINE": "1", "PYTHONPATH": str(DOCS.parent)}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=environment, capture_output=True)
    images = np.random.default_rng(0).uniform(-1, 1, (2, 28, 28, 3)).astype("float32")
    expected = zoo.load(tmp_path / "runs/digits").predict_on_batch(images)
    session = onnxruntime.InferenceSession(tmp_path / "digits.onnx")
    (logits,) = session.run(None, {session.get_inputs()[0].name: images})
    np.testing.assert_allclose(logits, expected, atol=1e-4)
