"""Saves a model to a file: `keras_vit.zoo.save`."""

import contextlib
import importlib
import json
import os
from typing import Any, Literal

from keras_vit.errors import CheckpointError, ConfigError, describe_unknown
from keras_vit.files import local_path, write_whole
from keras_vit.lora import without_lora
from keras_vit.models.classifier import Classifier, find_quantization
from keras_vit.zoo.formats import module_for
from keras_vit.zoo.formats.torch.transformers_files import make_config

LAYOUTS = (None, "timm", "transformers", "hub")


def save(
    model: Classifier,
    path: str | os.PathLike[str],
    *,
    layout: Literal["timm", "transformers", "hub"] | None = None,
    metadata: dict[str, Any] | None = None,
) -> None:
    """Writes a model's weights, whole or not at all, in the format of the file's ending.

    Args:
        model: a `VisionTransformer` or `ResNet`.
        path: `*.npz` for the official layout (pre-Linen names and shapes; the archive's comment holds what arrays
            cannot, such as the preprocessing), `*.safetensors` for timm's state dict (with the same in its header),
            `*.keras` or `*.weights.h5` for Keras'.
        layout: the library whose names the tensors of a .safetensors file have; None for timm. "transformers" also
            writes a config.json beside it: AutoModel.from_pretrained(folder) opens folder/model.safetensors. "hub"
            makes `path` a folder for the Hub that transformers, transformers.js, keras-hub, timm and `load` can open.
            Its README.md says how, and which of them cannot hold the model. `push` uploads it.
        metadata: with "hub", further facts for README.md: {"name": ..., "licence": "apache-2.0", "source": ...,
            "evaluated": {"dataset", "split", "images", "accuracy"}}.

    `zoo.load` makes an equal model from each of them. LoRA's factors are added to the kernels; rematerialization is not
    saved. timm loads the .safetensors file but does not read its header: by default it computes exact GELU and has its
    own epsilons (for a model with the authors' numerics pass act_layer="gelu_tanh"). Models that average
    (classifier="gap") need class_token=False, global_pool="avg", fc_norm=False. timm no longer has a layer before the
    head (representation_size), and only 1-D position embeddings at the stem, or none (pos_embed="none"). The authors'
    files have only 1-D ones; the other kinds of Appendix D.4 have names of our own in .npz.

    Raises:
        CheckpointError: for an unknown ending, a model of another package, a model whose tensors have no names in the
            format, or a place that cannot be written.

    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None)
    >>> keras_vit.zoo.save(model, "mine.npz")
    >>> keras_vit.zoo.load("mine.npz").config == model.config
    True
    """
    path = local_path(path, CheckpointError)
    if not isinstance(model, Classifier):
        raise CheckpointError(f"zoo.save writes models of this package. Received: a {type(model).__name__}.")
    if mode := find_quantization(model):
        raise CheckpointError(
            f"{model.name} was quantized by Keras ({mode}), which no format here can hold. Save it before "
            "model.quantize, or export it in int8."
        )
    model = without_lora(getattr(model, "folded_from", model))
    if layout == "hub":  # it also exports, and this room may not
        importlib.import_module("keras_vit.hub_folder").save_folder(model, path, metadata)
        return
    module = module_for(path)
    chosen = {} if layout is None else {"layout": layout}
    if layout not in LAYOUTS:
        raise ConfigError(describe_unknown("layout", layout, LAYOUTS[1:]))
    if layout and path.suffix != ".safetensors":
        raise ConfigError(f"layout={layout!r} is for .safetensors files. Received: {path}.")
    if not path.parent.is_dir():
        raise CheckpointError(
            f"Nothing can be written in {path.parent}: there is no such folder. Make it, or choose another."
        )
    try:
        with contextlib.ExitStack() as stack:
            temporary = stack.enter_context(write_whole(path))
            permissions = temporary.stat().st_mode & 0o777
            module.write(model, temporary, **chosen)
            temporary.chmod(permissions)  # safetensors replaces the file by one that only its owner can read
            if layout == "transformers":  # renamed first: if that fails, the old model stays too
                beside = stack.enter_context(write_whole(path.with_name("config.json")))
                beside.write_text(json.dumps(make_config(model), indent=2) + "\n", "utf-8")
    except OSError as error:
        raise CheckpointError(
            f"{path} could not be written: {error.strerror or error}. What was there before is unchanged."
        ) from error
