"""The figures that commands write look alike, and leave matplotlib as it was."""

import matplotlib
import numpy as np
import pytest
from PIL import Image, ImageColor

from keras_vit.evaluation.scores import Candidate, Share, draw_comparison
from keras_vit.evaluation.vtab import draw_groups
from keras_vit.pages import COLOURS, write_figure
from keras_vit.training.runs.callbacks import draw_curves

DRAWN = {
    "curves": lambda path: draw_curves([{"step": step, "loss": 1 / step} for step in (1, 2)], path),
    "compare": lambda path: draw_comparison([Candidate("a.onnx", Share(9, 10), np.zeros(10), 1, 1.0, 1)], path),
    "vtab": lambda path: draw_groups({"dtd": 0.5, "eurosat": 0.9}, "ViT-B/16", path),
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_begins_with_the_first_colour_on_white_paper(name, tmp_path):
    before = dict(matplotlib.rcParams)
    DRAWN[name](tmp_path / "figure.png")
    pixels = np.asarray(Image.open(tmp_path / "figure.png").convert("RGB"))
    assert (pixels == ImageColor.getrgb(COLOURS[0])).all(-1).sum() > 20
    assert (pixels[0] == 255).all()
    assert dict(matplotlib.rcParams) == before


def test_what_fails_while_it_is_drawn_writes_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), write_figure(tmp_path / "figure.png", 2, 1):
        1 / 0  # noqa: B018
    assert not (tmp_path / "figure.png").exists()
