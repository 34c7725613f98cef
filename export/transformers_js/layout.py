"""The folder that transformers.js opens: `pipeline("image-classification", folder)`.

Its ONNX files take "pixel_values", float32 (n, 3, height, width), and give "logits"; the library chooses among them by
its option dtype: "fp32", "q8" (int8, ranges as they come) or "fp16" (mixed_float16).
"""

import json

import keras
import numpy as np

from keras_vit.errors import ExportError, ParityError
from keras_vit.export.conversion import write_proved
from keras_vit.export.formats import format_named
from keras_vit.export.onnx import INLINE_LIMIT
from keras_vit.export.onnx.trace import unrecorded
from keras_vit.export.preparation import choose_input_shapes, fill_free_sizes, prepare_model
from keras_vit.export.proof.comparison import QUANTIZED_PROBES
from keras_vit.export.proof.probes import choose_inputs
from keras_vit.export.transformers_js import FILES
from keras_vit.export.transformers_js.configs import make_config, make_preprocessor_config


def describe_layout(model):
    """{file name: contents} of config.json and preprocessor_config.json.

    Raises:
        ExportError: for a model that transformers.js cannot open or feed.
    """
    source = prepare_model(model)
    shapes = [tuple(tensor.shape) for tensor in (*source.inputs, *source.outputs)]
    if [len(shape) for shape in shapes] != [4, 2]:
        raise ExportError(
            "transformers.js takes images (n, 3, height, width) and one row of logits for each. Received: a model of "
            f"the inputs and outputs {shapes}. Leave out web_layout."
        )
    if 4 * source.count_params() > INLINE_LIMIT:
        raise ExportError(
            f"{model.name!r} has {4 * source.count_params() / 1e9:.1f} GB of weights, which a browser cannot hold. "
            "Leave out web_layout, or choose a smaller model."
        )
    return {
        "config.json": make_config(model, shapes[1][-1]),
        "preprocessor_config.json": make_preprocessor_config(model, shapes[0][-1]),
    }


def write_layout(model, folder, options, tell):
    """Writes the layout into the new folder `folder`, each ONNX file compared with the model.

    Args:
        options: those of `convert`.
        tell: called with lines of text.
    """
    (folder / "onnx").mkdir(parents=True)
    if not getattr(model, "labels", None):
        tell("transformers: the model has no labels; its classes are called LABEL_0, LABEL_1 and so on")
    for name, contents in describe_layout(model).items():
        (folder / name).write_text(json.dumps(contents, indent=2) + "\n", "utf-8")
    source = prepare_model(model)
    shapes = fill_free_sizes(choose_input_shapes(model, source, options.get("image_size"), free_size=False), model)
    images = choose_inputs(source, shapes, options.get("images"), QUANTIZED_PROBES, model.preprocessing)[0]
    images = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    given = {"images": images, "metadata": options.get("metadata"), "tell": lambda line: tell(f"transformers: {line}")}
    with unrecorded(source):
        twin = with_channels_first(source, images.shape[1:])
        for name, quantize in FILES.items():
            try:
                report = write_proved(twin, format_named("onnx"), folder / name, quantize, **given)
            except ParityError as error:
                if quantize is None:
                    raise
                (folder / name).unlink(missing_ok=True)
                tell(f"transformers: {name} is left out. {error}")
            else:
                tell(f"transformers: {name}, {report.bytes / 1e6:.1f} MB, max difference {report.max_abs_diff:.1e}")


def with_channels_first(source, shape):
    """The model of images (n, c, h, w), with the names of tensors that the library expects."""
    x = keras.Input(shape, name="pixel_values")
    return keras.Model(x, {"logits": source(keras.ops.transpose(x, (0, 2, 3, 1)))}, name=source.name)
