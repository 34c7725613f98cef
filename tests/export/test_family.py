"""Every option of the family's encoders in every format, in float and in int8, run by the formats' own runtimes."""

import numpy as np
import pytest
from family_models import OPTIONS, made
from runtimes import RUN

from keras_vit import export
from keras_vit.models import Preprocessing

# {name of the file: quantize, the largest difference by the largest logit}
FILES = {
    "float.onnx": (None, 1e-5),
    "dynamic.onnx": ("dynamic", 0.1),
    "int8.onnx": ("int8", 0.1),
    "half.onnx": ("float16", 0.01),
    "dynamic.tflite": ("dynamic", 0.1),
    "int8.tflite": ("int8", 0.1),
    "saved": (None, 1e-5),
}
FIRST = ("float.onnx", "dynamic.onnx")


@pytest.mark.slow
@pytest.mark.parametrize("file", [pytest.param(name, marks=[pytest.mark.long] * (name not in FIRST)) for name in FILES])
@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_is_the_models_in_its_runtime(option, file, tmp_path):
    model, images = made(option)
    model.preprocessing = Preprocessing(model.config.image_size)
    quantize, allowed = FILES[file]
    report = export.convert(model, tmp_path / file, quantize=quantize)
    ending = file.rpartition(".")[2] if "." in file else ""
    found = RUN[f"model.{ending}" if ending else "model"](tmp_path / file, images)
    expected = model.predict_on_batch(images)
    assert np.abs(found - expected).max() <= allowed * np.abs(expected).max(), (option, file, report.finer)
