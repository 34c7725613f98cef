"""From a model to a file: `keras_vit.zoo.save`."""

import os
from pathlib import Path

from keras_vit.errors import CheckpointError
from keras_vit.files import require_local, write_whole
from keras_vit.lora import without_lora
from keras_vit.models.classifier import Classifier
from keras_vit.zoo.formats.checkpoint import find_ending


def save(model: Classifier, path: str | os.PathLike[str]) -> None:
    """Writes a model's weights, whole or not at all, in the format that the ending names.

    Args:
        model: a `VisionTransformer` or `ResNet`.
        path: *.npz for the official layout (pre-Linen names and shapes; what arrays can't tell, such as the
            preprocessing, goes into the archive's comment), *.safetensors for timm's state dict (the same goes into
            its header), *.keras or *.weights.h5 for Keras'.

    `zoo.load` makes an equal model of each of them; LoRA's factors are added to the kernels, and rematerialization is
    no part of a file. timm loads the .safetensors file, whose names and shapes
    are its own, but does not read the header: it computes exact GELU and its own epsilons unless told otherwise (for
    a model of the authors' numerics pass act_layer="gelu_tanh"), and models that average (classifier="gap") need
    class_token=False, global_pool="avg", fc_norm=False. timm no longer has a layer under the head
    (representation_size), and no position embeddings but 1-D ones at the stem, or none (pos_embed="none"); the authors'
    files have the first alone, and what Appendix D.4 tries beside it gets names of ours in .npz.

    Raises:
        CheckpointError: for an ending that names no format, a model of another package, a model whose tensors have no
            names in the format, or a place that cannot be written.

    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None)
    >>> keras_vit.zoo.save(model, "mine.npz")
    >>> keras_vit.zoo.load("mine.npz").config == model.config
    True
    """
    require_local(path, CheckpointError)
    path = Path(path)
    if not isinstance(model, Classifier):
        raise CheckpointError(f"zoo.save writes models of this package. Received: a {type(model).__name__}.")
    module, model = find_ending(path).load(), without_lora(model)
    if not path.parent.is_dir():
        raise CheckpointError(
            f"Nothing can be written in {path.parent}: there is no such folder. Make it, or choose another."
        )
    try:
        with write_whole(path) as temporary:
            permissions = temporary.stat().st_mode & 0o777
            module.write(model, temporary)
            temporary.chmod(permissions)  # safetensors puts a file of its own, for its owner alone, in the place
    except OSError as error:
        raise CheckpointError(
            f"{path} could not be written: {error.strerror or error}. What was there before is unchanged."
        ) from error
