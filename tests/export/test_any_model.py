"""Models of other people: who needs which emitter, the operators of TFLite, and the rows of docs/any_model.md."""

import dataclasses
import pathlib

import any_model_page
import any_models
import keras
import numpy as np
import pytest

from keras_vit import export
from keras_vit.errors import ExportError
from keras_vit.export import doctor
from keras_vit.export.onnx import lowering
from keras_vit.export.onnx.emit import LAYERS, OPERATIONS
from keras_vit.export.preparation import prepare, prepare_model
from keras_vit.export.tflite import builtin_roll, group_neighbours, transpose_in_steps

pytestmark = pytest.mark.usefixtures("forked_converters")
PAGE = pathlib.Path(__file__).parents[2] / "docs/any_model.md"


class Recording(dict):
    """A table that knows which of its entries were looked up."""

    def __init__(self, table):
        super().__init__(table)
        self.used = set()

    def __getitem__(self, name):
        self.used.add(name)
        return super().__getitem__(name)


def entries_used(model, monkeypatch):
    """The emitters that write `model`; none where tf2onnx takes it."""
    operations, layers = Recording(OPERATIONS), Recording(LAYERS)
    monkeypatch.setattr(lowering, "OPERATIONS", operations)
    monkeypatch.setattr(lowering, "LAYERS", layers)
    source = prepare_model(model)
    try:
        lowering.lower(source, [tuple(x.shape) for x in source.inputs])
    except lowering.Unsupported:
        return set()
    return operations.used | layers.used


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("library", ["keras_vit", "keras.applications", "keras_hub", "zeromodels"])
@pytest.mark.filterwarnings("ignore:You are using a softmax over axis:UserWarning")  # of the others' smallest models
@pytest.mark.filterwarnings("ignore:Layer .* was passed an input with a mask:UserWarning")
def test_the_table_says_which_libraries_need_an_emitter(library, monkeypatch):
    if not any_models.is_installed(library):
        pytest.skip(f"{library} is not installed")
    used = set()
    for row in any_models.ROWS:
        if row.library == library:
            used |= entries_used(row.build(), monkeypatch)
            keras.backend.clear_session()
    assert used == {name for name, row in {**OPERATIONS, **LAYERS}.items() if library in row.needed_by}


def test_every_emitter_is_needed():
    assert all(row.needed_by for row in {**OPERATIONS, **LAYERS}.values())


def find(library, name):
    return next(row for row in any_models.ROWS if (row.library, row.name) == (library, name))


@pytest.mark.parametrize("library, name", [("keras_hub", "SwinTransformer"), ("zeromodels", "LeViT")])
@pytest.mark.filterwarnings("ignore:Layer .* was passed an input with a mask:UserWarning")
def test_others_are_exported(library, name, tmp_path):
    if not any_models.is_installed(library):
        pytest.skip(f"{library} is not installed")
    model = any_model_page.random_model(find(library, name))
    assert any_model_page.way_to_onnx(model) == "emitters"
    assert export.convert(model, tmp_path / "model.onnx").max_rel_diff < 1e-5


class Windows(keras.layers.Layer):
    """Swin's two movements: images (n, 8, 8, 4) shifted, then cut into windows and heads by transposes."""

    def call(self, x):
        x = keras.ops.roll(x, shift=(-1, 3), axis=(1, 2))
        x = keras.ops.reshape(x, (-1, 2, 4, 2, 4, 2, 2))
        return keras.ops.transpose(x, (5, 0, 3, 1, 6, 4, 2)) * 2.0


@pytest.mark.slow
def test_shifted_windows_need_only_builtin_operators(tmp_path):
    x = keras.Input((8, 8, 4))
    y = keras.ops.reshape(keras.ops.transpose(Windows()(x), (1, 0, 2, 3, 4, 5, 6)), (-1, 256))
    model = keras.Model(x, keras.layers.Dense(3)(y))
    for suffix in ("onnx", "tflite"):
        assert export.convert(model, tmp_path / f"model.{suffix}").max_rel_diff < 1e-6


@pytest.mark.parametrize("shift, axis", [(2, 1), ((-1, 3), (1, 2)), (-7, 0), (0, 0), (5, -1)])
def test_a_roll_in_slices(shift, axis):
    x = np.arange(60).reshape(3, 4, 5)
    assert (np.asarray(builtin_roll(keras.ops.convert_to_tensor(x), shift, axis)) == np.roll(x, shift, axis)).all()


@pytest.mark.parametrize("axes", (7, 8, 9))
def test_a_transpose_in_steps(axes):
    random = np.random.default_rng(axes)

    def few(x, perm):
        assert len(perm) <= 6
        return keras.ops.transpose(x, perm)

    for _ in range(20):
        perm, x = random.permutation(axes).tolist(), random.normal(size=random.integers(1, 4, axes))
        assert (np.asarray(transpose_in_steps(few, keras.ops.convert_to_tensor(x), perm)) == x.transpose(perm)).all()


def test_axes_that_stay_side_by_side():
    assert group_neighbours([0, 3, 1, 2]) == [[0], [3], [1, 2]]


def test_the_page_has_rows_of_every_library():
    lines = any_model_page.lines_of(PAGE.read_text("utf-8"))
    assert list(lines) == [(row.library, row.name) for row in any_models.ROWS if (row.library, row.name) in lines]
    assert {(row.library, row.name) for row in any_model_page.CHECKED_ROWS} <= set(lines)
    assert sum(library != "keras_vit" for library, _ in lines) >= 40


@pytest.mark.slow
@pytest.mark.parametrize(
    "row",
    [
        row if row.name == "MobileNetV3Small" else pytest.param(row, marks=pytest.mark.long)
        for row in any_model_page.CHECKED_ROWS
    ],
    ids=lambda row: f"{row.library}-{row.name}",
)
@pytest.mark.filterwarnings("ignore::UserWarning")  # of the others' layers, about masks and axes of length 1
def test_the_page_is_true(row, tmp_path):
    """On TensorFlow its bounds hold, and each model takes the way that it says."""
    if not any_models.is_installed(row.library):
        pytest.skip(f"{row.library} is not installed")
    said = any_model_page.lines_of(PAGE.read_text("utf-8"))[row.library, row.name]
    model = any_model_page.random_model(row)
    assert any_model_page.way_to_onnx(model) == said.way
    onnx = export.convert(model, tmp_path / "model.onnx")
    assert onnx.max_rel_diff < said.bound("onnx") and f"{onnx.bytes / 1e6:.1f}" == said.megabytes
    if said.tflite == "not exported":
        with pytest.raises(ExportError):
            export.convert(model, tmp_path / "model.tflite")
    else:
        assert export.convert(model, tmp_path / "model.tflite").max_rel_diff < said.bound("tflite")
    by_keras = doctor.examine(prepare(model), "onnx", "Keras", str(tmp_path / "keras.onnx"))
    assert any_model_page.describe_keras(dataclasses.asdict(by_keras)).split(",")[0] == said.keras.split(",")[0]
