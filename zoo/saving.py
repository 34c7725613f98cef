"""From a model to a file: `keras_vit.zoo.save`."""

import functools
import json
import zipfile
from pathlib import Path

import numpy as np

from keras_vit.errors import CheckpointError
from keras_vit.files import write_whole
from keras_vit.models.classifier import Classifier
from keras_vit.zoo.formats.torch import layouts as torch_layouts
from keras_vit.zoo.formats.variables import variables

# A zip archive's comment holds no more.
MOST_COMMENT = 2**16 - 1


def save(model, path):
    """Writes a model's weights, whole or not at all, in the format that the ending names.

    Args:
        model: a `VisionTransformer` or `ResNet`.
        path: *.npz for the official layout (pre-Linen names and shapes; what arrays can't tell, such as the
            preprocessing, goes into the archive's comment), *.safetensors for timm's state dict (the same goes into
            its header), *.keras or *.weights.h5 for Keras'.

    `zoo.load` gives the same model again from each of them. timm loads the .safetensors file, whose names and shapes
    are its own, but does not read the header: it computes exact GELU and its own epsilons unless told otherwise (for
    a model of the authors' numerics pass act_layer="gelu_tanh"), and models that average (classifier="gap") need
    class_token=False, global_pool="avg", fc_norm=False. A layer under the head (representation_size) timm has no more.

    Raises:
        CheckpointError: for an ending that names no format, a foreign model, or a place that cannot be written.

    >>> keras_vit.zoo.save(model, "mine.npz")
    >>> keras_vit.zoo.load("mine.npz")
    """
    path = Path(path)
    if not isinstance(model, Classifier):
        raise CheckpointError(f"zoo.save writes models of this package. Received: a {type(model).__name__}.")
    for ending, writer in WRITERS.items():
        if path.name.endswith(ending):
            return save_whole(path, functools.partial(writer, model))
    raise CheckpointError(f"{path} has an ending that names no format. Known: {', '.join(WRITERS)}.")


def save_whole(path, write):
    try:
        with write_whole(path) as temporary:
            temporary.touch(exist_ok=False)
            permissions = temporary.stat().st_mode & 0o777  # of any new file
            write(temporary)
            temporary.chmod(permissions)  # safetensors puts a file of its own in the place
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} could not be written: {error}. What was there before is unchanged.") from error


def official(model):
    """{official name: array}, in the order and the shapes of the authors' files."""
    from keras import ops

    tensors = {}
    for name, (variable, shape) in variables(model).items():
        values = np.asarray(ops.convert_to_numpy(variable), "float32").reshape(shape)
        four = (1, 1, 1, -1) if is_hybrid_norm(name) else shape
        tensors[name] = values.reshape(four)
    return tensors


def is_hybrid_norm(name):
    """Group norms under the hybrids are (1, 1, 1, c) in the authors' files."""
    return name.split("/")[-2].startswith("gn") if "/" in name else False


def description(model):
    """A model as its class and arguments, the part that Keras writes into `.keras` files."""
    config = {key: value for key, value in model.get_config().items() if key not in ("name", "dtype")}
    return {"class_name": type(model).__name__, "config": config}


def write_official(model, path):
    np.savez(path, **official(model))
    about = description(model)
    comment = json.dumps(about).encode()
    if len(comment) > MOST_COMMENT:
        comment = json.dumps({**about, "config": {**about["config"], "labels": None}}).encode()
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = comment


def write_timm(model, path):
    from safetensors.numpy import save_file

    squeezed = {
        name: values.reshape(-1) if is_hybrid_norm(name) else values for name, values in official(model).items()
    }
    metadata = {"format": "pt", "keras_vit": json.dumps(description(model))}
    save_file(torch_layouts.timm_state(model.config, squeezed), path, metadata)


def write_keras(model, path):
    model.save(path)


def write_weights(model, path):
    import h5py

    model.save_weights(path, overwrite=True)
    with h5py.File(path, "a") as file:
        file.attrs["keras_vit"] = json.dumps(description(model))


WRITERS = {".npz": write_official, ".safetensors": write_timm, ".keras": write_keras, ".weights.h5": write_weights}
