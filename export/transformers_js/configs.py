"""config.json and preprocessor_config.json: a classifier and its preprocessing in the words of transformers.

What they cannot say is refused. How a resize averages pixels they leave to the library: transformers.js uses the
browser's own way, or sharp's under Node.
"""

import math

from keras_vit.errors import ExportError
from keras_vit.export.description import describe_preprocessing

RESAMPLE = {"nearest": 0, "lanczos3": 1, "bilinear": 2, "bicubic": 3}  # Pillow's numbers
# By whether the model has attention: what the library calls a model that it feeds images and asks for logits.
TYPES = {True: ("vit", "ViTForImageClassification"), False: ("resnet", "ResNetForImageClassification")}


def make_config(model, num_classes):
    """The contents of config.json for a model and the number of its logits.

    Raises:
        ExportError: for probabilities that are not softmax's, the only ones of the library's image classification.
    """
    if getattr(getattr(model, "config", None), "probabilities", "softmax") != "softmax":
        raise ExportError(
            f"transformers.js makes softmax of every image classifier's logits, and {model.name!r} needs sigmoid: its "
            "images have several classes. Leave out web_layout, or use the .onnx file with onnxruntime-web."
        )
    labels = getattr(model, "labels", None) or [f"LABEL_{i}" for i in range(num_classes)]
    model_type, architecture = TYPES[hasattr(model, "attention")]
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "id2label": {str(i): name for i, name in enumerate(labels)},
        "label2id": {name: i for i, name in enumerate(labels)},
    }


def make_preprocessor_config(model, channels):
    """The contents of preprocessor_config.json: what `Preprocessing` does to an RGB image.

    Raises:
        ExportError: for an unknown preprocessing, other channels than three, and a crop that keeps the aspect ratio
            and is not square.
    """
    about = describe_preprocessing(getattr(model, "preprocessing", None))
    if about is None or channels != 3:
        received = "an unknown preprocessing" if about is None else f"{channels} channels"
        raise ExportError(
            f"transformers.js feeds RGB images, preprocessed as the model says. {model.name!r} has {received}: leave "
            "out web_layout."
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
                    "preprocessor_config.json has no words for a crop that keeps the aspect ratio and is not square. "
                    f"Received: {height}x{width}. Leave out web_layout, or give a preprocessing with another crop."
                )
            size = {"shortest_edge": before[0]}
    numbers = {name: [*map(float, as_three(about[name]))] for name in ("mean", "std")}
    return {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": size,
        "resample": RESAMPLE[about["interpolation"]],
        **cropping,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": numbers["mean"],
        "image_std": numbers["std"],
    }


def as_three(numbers):
    """A number for each of three channels."""
    return numbers if isinstance(numbers, list) else [numbers] * 3
