"""The folder that transformers.js opens: `pipeline("image-classification", folder)`, of a model of vectors
`pipeline("image-feature-extraction", folder)`.

Its ONNX files take "pixel_values", float32 (n, 3, height, width), and give "logits"; the library chooses one by its
option dtype: "fp32" or "q8" (int8, ranges at run time). Models that its configurations cannot express are refused. The
configurations do not state how a resize averages pixels: transformers.js resizes like the browser, or sharp under Node.
"""

import json
import math

import keras
import numpy as np

from keras_vit.errors import ExportError, ParityError
from keras_vit.export.conversion import write_proved
from keras_vit.export.description import describe_preprocessing
from keras_vit.export.formats import format_named
from keras_vit.export.onnx import INLINE_LIMIT
from keras_vit.export.onnx.lowering import unrecorded
from keras_vit.export.preparation import TRACING, prepare
from keras_vit.export.proof.comparison import QUANTIZED_PROBES
from keras_vit.export.web import LAYOUT_FILES

RESAMPLE = {"nearest": 0, "lanczos3": 1, "bilinear": 2, "bicubic": 3}  # Pillow's numbers
TYPES = {True: ("vit", "ViT"), False: ("resnet", "ResNet")}  # by whether the model has attention: the library's names


def make_config(model, num_classes, kind):
    """The contents of config.json for a model, the number of its logits, and its "probabilities", None for vectors."""
    if kind not in ("softmax", None):
        own = "needs sigmoid, since its images have several classes" if kind == "sigmoid" else "gives probabilities"
        raise ExportError(
            f"transformers.js applies softmax to every image classifier's logits, but {model.name!r} {own}. Leave out "
            "web_layout, or use the .onnx file with onnxruntime-web."
        )
    model_type, name = TYPES[hasattr(model, "attention")]
    if kind is None:
        return {"architectures": [f"{name}Model"], "model_type": model_type}
    labels = getattr(model, "labels", None) or [f"LABEL_{i}" for i in range(num_classes)]
    return {
        "architectures": [f"{name}ForImageClassification"],
        "model_type": model_type,
        "id2label": {str(i): name for i, name in enumerate(labels)},
        "label2id": {name: i for i, name in enumerate(labels)},
    }


def make_preprocessor_config(source, channels):
    """The contents of preprocessor_config.json, equal to `Preprocessing` for RGB images."""
    about = describe_preprocessing(source.preprocessing)
    if about is None or channels != 3:
        received = "an unknown preprocessing" if about is None else f"{channels} channels"
        raise ExportError(
            f"transformers.js feeds RGB images, preprocessed as the model says. {source.model.name!r} has {received}: "
            "leave out web_layout."
        )
    height, width = about["image_size"]
    size, crop = {"height": height, "width": width}, about["crop"]
    cropping: dict = {"do_center_crop": False}
    if crop is not None:
        before = [math.floor(length / crop + 1e-6) for length in (height, width)]
        cropping = {"do_center_crop": True, "crop_size": size}
        size = {"height": before[0], "width": before[1]}
        if about["crop_mode"] != "squash":
            if height != width:
                raise ExportError(
                    "preprocessor_config.json cannot describe a crop that keeps the aspect ratio and is not square. "
                    f"Received: {height}x{width}. Leave out web_layout, or give a preprocessing with another crop."
                )
            size = {"shortest_edge": before[0]}
    return {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": size,
        "resample": RESAMPLE[about["interpolation"]],
        **cropping,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": np.broadcast_to(about["mean"], 3).astype(float).tolist(),
        "image_std": np.broadcast_to(about["std"], 3).astype(float).tolist(),
    }


def describe_layout(source):
    """{file name: contents} of config.json and preprocessor_config.json."""
    model = source.functional
    shapes = [tuple(tensor.shape) for tensor in (*model.inputs, *model.outputs)]
    if [len(shape) for shape in shapes] != [4, 2]:
        raise ExportError(
            "transformers.js takes images (n, 3, height, width) and one row of logits for each. Received: a model of "
            f"the inputs and outputs {shapes}. Leave out web_layout."
        )
    if 4 * model.count_params() > INLINE_LIMIT:
        raise ExportError(
            f"{source.model.name!r} has {4 * model.count_params() / 1e9:.1f} GB of weights, more than a browser "
            "holds. Leave out web_layout, or choose a smaller model."
        )
    return {
        "config.json": make_config(model, shapes[1][-1], source.describe(source.choose_shapes())["probabilities"]),
        "preprocessor_config.json": make_preprocessor_config(source, shapes[0][-1]),
    }


def write_layout(source, folder, tell):
    """Writes the layout into a new folder, each ONNX file compared with the model."""
    (folder / "onnx").mkdir(parents=True)
    layout = describe_layout(source)
    if "id2label" in layout["config.json"] and not source.functional.labels:
        tell("transformers: the model has no labels; its classes are called LABEL_0, LABEL_1 and so on")
    for name, contents in layout.items():
        (folder / name).write_text(json.dumps(contents, indent=2) + "\n", "utf-8")
    images = source.choose_inputs(source.choose_shapes(free_size=False), QUANTIZED_PROBES)[0]
    images = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    with TRACING, unrecorded(source.functional):
        x = keras.Input(images.shape[1:], name="pixel_values")
        logits = source.functional.call(keras.ops.transpose(x, (0, 2, 3, 1)))  # layer by layer, as in a proof
        twin = keras.Model(x, {"logits": logits}, name=source.functional.name)
        twin = prepare(twin, images=images, metadata=source.metadata)
        for name, quantize in LAYOUT_FILES.items():
            try:
                report = write_proved(
                    twin, format_named("onnx"), folder / name, quantize, tell=lambda line: tell(f"transformers: {line}")
                )
            except ParityError as error:
                if quantize is None:
                    raise
                (folder / name).unlink(missing_ok=True)
                tell(f"transformers: {name} is left out. {error}")
            else:
                tell(f"transformers: {name}, {report.bytes / 1e6:.1f} MB, max difference {report.max_abs_diff:.1e}")
