"""Exports of the models of Appendix D.4: each artefact, quantized or not, is the model in its own runtime."""

import numpy as np
import pytest
from positions import KINDS, answer, blocks, images, make
from runtimes import RUN
from slowness import mark_but

from keras_vit import export
from keras_vit.export.formats import require_known_operations

pytestmark = pytest.mark.usefixtures("forked_converters")
# One of each kind stands for all where a conversion takes a process of its own.
EACH_KIND = pytest.mark.parametrize(
    ("kind", "place"), mark_but(pytest.mark.long, [*KINDS[:2], ("2d", "every-layer-shared"), KINDS[-1]], KINDS[-1])
)


def converted(model, path):
    """The report of an export, whose artefact is run here too, at two batch sizes."""
    report = export.convert(model, path)
    require_known_operations(report.format, path)
    for batch in (1, 3):
        expected = answer(model, images(batch))
        np.testing.assert_allclose(RUN[path.name](path, images(batch)), expected, atol=1e-5 * np.abs(expected).max())
    return report


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "place"), KINDS)
def test_onnx(kind, place, tmp_path):
    """The key's bias and the norms are folded away; relative logits are of queries alone, and stay right."""
    report = converted(make(kind, place), tmp_path / "model.onnx")
    assert report.cosine > 0.99999


@pytest.mark.slow
@EACH_KIND
def test_other_formats(kind, place, tmp_path):
    model = make(kind, place)
    for name in ("model.tflite", "model"):
        assert converted(model, tmp_path / name).cosine > 0.99999


@pytest.mark.slow
@EACH_KIND
def test_quantized(kind, place, tmp_path):
    model = make(kind, place, noise=0.1, hidden_size=64, num_heads=4, mlp_dim=128)
    for name, quantize in (("model.onnx", "dynamic"), ("model.onnx", "float16"), ("model.tflite", "dynamic")):
        report = export.convert(model, tmp_path / name, quantize=quantize, images=blocks(64))
        require_known_operations(report.format, tmp_path / name)
        assert report.cosine > 0.97 and report.weight_bytes < 0.7 * report.model_weight_bytes
        (tmp_path / name).unlink()
