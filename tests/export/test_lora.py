"""A model with LoRA whose factors have learned, exported: the artefacts compute what it does, factors added in."""

import numpy as np
import pytest

from keras_vit import export, training, zoo
from keras_vit.export.opening import open_artefact

pytestmark = pytest.mark.usefixtures("forked_converters")


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["onnx", "tflite"])
def test_an_export_equals_the_model(tmp_path, suffix):
    rng = np.random.default_rng(0)
    model = zoo.load("ViT-Test/4", weights=None, image_size=16, num_layers=2, num_classes=5)
    model.get_layer("head").kernel.assign(rng.normal(size=(64, 5)))
    images = rng.normal(size=(8, 16, 16, 3)).astype("float32")
    before = np.asarray(model(images))
    training.enable_lora(model, 4)
    model.compile(training.Adam(0.02), training.SoftmaxLoss())
    model.fit(images, rng.integers(0, 5, 8), epochs=5, verbose=0)
    expected = np.asarray(model(images, training=False))
    assert np.abs(expected - before).max() > 0.1  # it has learned
    path = tmp_path / f"model.{suffix}"
    export.convert(model, path)
    np.testing.assert_allclose(open_artefact(path).run(images), expected, atol=1e-4)
    assert any(layer.lora_enabled for layer in model._flatten_layers() if hasattr(layer, "lora_enabled"))  # still
