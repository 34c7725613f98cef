"""docs/tutorial.md and the notebook: each command and each block runs in order, and prints what the page shows."""

import doctest
import re
from pathlib import Path

import pytest
from page_runner import read_blocks, run_block

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "tutorial.md"
NOTEBOOK = ROOT / "examples" / "photos.ipynb"
NUMBER = re.compile(r"[*@]|\d+(?:[.,:]\d+)*%?")  # and the marks of the best epoch
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def mask_numbers(text):
    """Accuracies, times and the best epoch differ between machines: what stands around them does not."""
    return re.sub(r"#(?: *#)*", "#", NUMBER.sub("#", text))


@pytest.mark.long
def test_the_tutorial_runs_and_prints_what_it_shows(tmp_path):
    text = PAGE.read_text("utf-8")
    blocks = read_blocks(text)
    assert len(blocks) > 10
    for block in blocks:
        printed = run_block(block, tmp_path)
        shown = block.shown
        assert doctest.OutputChecker().check_output(mask_numbers(shown), mask_numbers(printed), FLAGS) or not shown, (
            f"{block.code}\n{printed}\ndiffers from\n{shown}"
        )
        if "keras-vit evaluate" in block.code:
            assert float(re.search(r"([\d.]+)%", printed)[1]) > 60
    for picture in re.findall(r"\(images/([^)]+)\)", text):
        assert (PAGE.parent / "images" / picture).stat().st_size < 60_000


@pytest.mark.long
def test_the_notebook_runs_from_top_to_bottom(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells), "outputs are stored"
    nbclient.NotebookClient(notebook, timeout=500, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in printed)
    assert "as the model does" in str(printed[-1])
