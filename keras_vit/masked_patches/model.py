"""A Vision Transformer that learns without labels, by masked patch prediction (Appendix B.1.2); its answers drawn."""

import os
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit import _registration
from keras_vit.data.augment.masked_patches import COLOURS, LEVELS, MaskedPatches, PatchTarget
from keras_vit.distribution import DistributedModel
from keras_vit.errors import ConfigError
from keras_vit.layers.base import ConfiguredLayer
from keras_vit.models.classifier import Classifier, image_input, linear_head
from keras_vit.models.config import ViTConfig
from keras_vit.models.preprocessing import Preprocessing, to_pixels
from keras_vit.pages import write_figure

GREY = 0.5  # of masked patches
TITLES = ("images", "corrupted", "predicted", "right")


def take(x, places):
    """The rows of x (n, l, d) at `places`, int (n, k): (n, k, d)."""
    return ops.take_along_axis(x, ops.expand_dims(places, -1), axis=1)


@keras.saving.register_keras_serializable(package="keras_vit")
class CorruptPatches(ConfiguredLayer):
    """Puts the embedding of patch `sources[i]` at every place i, or the learnable mask embedding for -1.

    Patch embeddings (n, l, d) and sources int (n, l) to (n, l, d). It comes before the class token and the position
    embeddings, so that a masked patch keeps its place.

    >>> x = np.arange(6.0).reshape(1, 3, 2)
    >>> ops.convert_to_numpy(CorruptPatches()(x, np.array([[0, 0, -1]]))).tolist()
    [[[0.0, 1.0], [0.0, 1.0], [0.0, 0.0]]]
    """

    def build(self, patches_shape, sources_shape):
        # zeros, like the class token in vit_jax
        self.mask_embedding = self.add_weight(
            name="mask_embedding", shape=(1, 1, patches_shape[-1]), initializer="zeros"
        )

    def call(self, patches, sources):
        replaced = take(patches, ops.maximum(sources, 0))
        masked = ops.expand_dims(ops.less(sources, 0), -1)
        return ops.where(masked, ops.cast(self.mask_embedding, patches.dtype), replaced)

    def compute_output_spec(self, patches, sources):
        return keras.KerasTensor(patches.shape, patches.dtype)


@keras.saving.register_keras_serializable(package="keras_vit")
class TakePatches(ConfiguredLayer):
    """The tokens of some patches: tokens (n, l, d) and places int (n, k) to (n, k, d).

    Args:
        prefix_tokens: number of tokens before the patches: the class token and registers.

    >>> ops.convert_to_numpy(TakePatches(prefix_tokens=1)(np.array([[[7.0], [8.0], [9.0]]]), np.array([[1]]))).item()
    9.0
    """

    def __init__(self, prefix_tokens: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.prefix_tokens = prefix_tokens

    def call(self, tokens, places):
        return take(tokens, places + self.prefix_tokens)

    def compute_output_spec(self, tokens, places):
        return keras.KerasTensor((*places.shape, tokens.shape[-1]), tokens.dtype)


def require_patchwise(config):
    """Refuses a configuration unless the model reads an image of three channels patch by patch."""
    if not isinstance(config, ViTConfig) or config.backbone:
        raise ConfigError(
            "Masked patches need a Vision Transformer that sees the image patch by patch: the convolutions of a hybrid "
            "or a ResNet show a masked patch to its neighbours. Choose a ViT, such as ViT-B/16."
        )
    if config.has_free_size:
        raise ConfigError("Masked patches need images of one size. Load the model with image_size=(height, width).")
    if config.num_channels != 3:
        raise ConfigError(f"Masked patches need images of 3 channels. Received: {config.num_channels}.")


def require_headless(config):
    """Refuses the configuration of a model with a head, since masked patches would not train that."""
    if config.num_classes or config.representation_size:
        raise ConfigError(
            "Masked patches need an encoder without head: load it with num_classes=0. Received: "
            f"num_classes={config.num_classes}, representation_size={config.representation_size}."
        )


def predict_patches(x, objective, dtype):
    """The head: tokens (n, count, d) to logits (n, count, [16,] 512) or values (n, count, pixels * 3)."""
    shape = objective.target_shape
    units = shape[0] if objective.side is None else objective.side**2 * COLOURS
    x = linear_head(x, units, dtype, "patch_head")
    if objective.side is None or not shape:
        return x
    return keras.layers.Reshape((x.shape[1], *shape, COLOURS), dtype=x.dtype, name="colours")(x)


@keras.saving.register_keras_serializable(package="keras_vit")
class MaskedPatchModel(DistributedModel):
    """Predicts corrupted patches from their own tokens, to train an encoder without labels (Appendix B.1.2).

    It shares its layers and weights with the encoder, so that training it trains `encoder`. It adds the layers
    "corrupt_patches", which replaces patch embeddings, "take_patches" and "patch_head", a linear layer that starts at
    zero. `fit` takes the batches of `examples.with_objective(model.objective)`.

    Inputs are a dict of "images" (n, h, w, 3), "sources" int (n, patches) and "places" int (n, count), explained in
    `keras_vit.data.Examples.with_objective`. Outputs are, for each corrupted patch, the logits (n, count, 512) of its
    mean colour, (n, count, 16, 512) of the colours of its parts, or (n, count, values) of its pixels.

    Args:
        encoder: a `VisionTransformer` without head (num_classes=0) and without backbone: a hybrid's convolutions would
            show a masked patch to its neighbours.
        target, rate: as in `keras_vit.data.MaskedPatches`.
        dtype: policy of the new layers; None for the encoder's.
        name: name of the model.

    Raises:
        ConfigError: for an encoder of another kind.
        DataError: for an unknown target or an invalid rate.

    >>> model = MaskedPatchModel(keras_vit.zoo.load("ViT-Test/4", weights=None, num_classes=0), rate=0.15)
    >>> model.output_shape
    (None, 10, 512)
    >>> images = keras_vit.data.load("digits").with_objective(model.objective)
    >>> model.fit(images.train(32, model.preprocessing), steps_per_epoch=40)  # doctest: +SKIP
    >>> keras_vit.zoo.save(model.encoder, "encoder.npz")
    """

    def __init__(
        self,
        encoder: Classifier,
        target: PatchTarget = "mean-colour",
        rate: float = 0.5,
        dtype: str | keras.DTypePolicy | None = None,
        name: str | None = None,
    ):
        config = encoder.config
        require_patchwise(config)
        require_headless(config)
        objective = MaskedPatches(config.patch_size, target, rate)
        policy = keras.dtype_policies.get(dtype) if dtype is not None else encoder.dtype_policy
        rows, columns = objective.grid(config.image_size)
        inputs = {
            "images": image_input(config.image_size[0], config.image_size[1], config.num_channels, policy),
            "sources": keras.Input((rows * columns,), dtype="int32", name="sources"),
            "places": keras.Input((objective.count_corrupted(config.image_size),), dtype="int32", name="places"),
        }
        patches = encoder.get_layer("embedding").output  # (n, l, d)
        embed = keras.Model(encoder.inputs[0], patches)
        encode = keras.Model(patches, encoder.get_layer("encoder_norm").output)
        # `call`, unlike a call of the model, makes its layers those of this model.
        x = CorruptPatches(dtype=policy, name="corrupt_patches")(embed.call(inputs["images"]), inputs["sources"])
        x = encode.call(x)
        x = TakePatches(config.prefix_tokens, dtype=policy, name="take_patches")(x, inputs["places"])
        super().__init__(inputs, predict_patches(x, objective, policy), name=name)
        self.dtype_policy = policy
        self.encoder = encoder
        self.objective = objective

    @property
    def config(self) -> Any:
        """The encoder's configuration."""
        return self.encoder.config

    @property
    def preprocessing(self) -> Preprocessing:
        """The encoder's."""
        return self.encoder.preprocessing

    @property
    def remat(self) -> bool:
        """The encoder's."""
        return self.encoder.remat

    @remat.setter
    def remat(self, remat):
        self.encoder.remat = remat

    def _standardize_inputs(self, inputs):
        """The batch as the graph takes it: uint8 images are normalized, as the encoder does."""
        if isinstance(inputs, dict) and keras.backend.standardize_dtype(inputs["images"].dtype) == "uint8":
            inputs = {**inputs, "images": self.preprocessing.normalize(inputs["images"])}
        return super()._standardize_inputs(inputs)

    def get_config(self):
        return {
            "encoder": keras.saving.serialize_keras_object(self.encoder),
            "target": self.objective.target,
            "rate": self.objective.rate,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**{**config, "encoder": keras.saving.deserialize_keras_object(config["encoder"])})


def colours_to_pixels(numbers, objective):
    """Turns numbers of colours (..., [16]) into patches (..., height, width, 3) in [0, 1] of these colours' centres."""
    levels = np.stack([numbers // LEVELS**2, numbers // LEVELS % LEVELS, numbers % LEVELS], -1)
    side, (height, width) = objective.side, objective.patch_size
    # (..., side, side, 3); each pixel has the colour of its part.
    parts = ((levels + 0.5) / LEVELS).reshape(*numbers.shape[:2], side, side, 3)
    return parts[..., np.arange(height)[:, None] * side // height, np.arange(width) * side // width, :]


def cut(images, objective):
    """Cuts (n, h, w, 3) into (n, patches, height, width, 3)."""
    n, h, w, c = images.shape
    height, width = objective.patch_size
    parts = images.reshape(n, h // height, height, w // width, width, c)
    return parts.transpose(0, 1, 3, 2, 4, 5).reshape(n, -1, height, width, c)


def join(patches, grid):
    """The reverse of `cut`."""
    n, _, height, width, c = patches.shape
    parts = patches.reshape(n, *grid, height, width, c).transpose(0, 1, 3, 2, 4, 5)
    return parts.reshape(n, grid[0] * height, grid[1] * width, c)


def picture_patches(values: np.ndarray, model: Any) -> np.ndarray:
    """Turns targets or predictions of patches into pixels in [0, 1]: (n, count, patch height, patch width, 3).

    `values` are class numbers (n, count) or (n, count, 16), or pixels (n, count, pixels * 3) as the model takes them.
    """
    objective = model.objective
    if objective.side is not None:
        return colours_to_pixels(values, objective)
    return to_pixels(values.reshape(*values.shape[:2], *objective.patch_size, 3), model)


def draw_masked_patches(
    model: Any, inputs: Mapping[str, Any], targets: Any, predictions: Any, path: str | os.PathLike
) -> None:
    """Writes a PNG with a column for each image: the image, the model's input, its prediction, the target.

    Masked patches are grey. In the lower two rows only the corrupted patches are painted over the image.

    Args:
        model: a `MaskedPatchModel`.
        inputs, targets: a batch, of a few images, of `examples.with_objective(model.objective)`.
        predictions: model(inputs).
        path: of the file.
    """
    images, sources, places = (np.asarray(inputs[name]) for name in ("images", "sources", "places"))
    predictions = keras.ops.convert_to_numpy(predictions)
    predictions = predictions if model.objective.side is None else predictions.argmax(-1)
    patches = cut(to_pixels(images, model), model.objective)
    which = np.arange(len(images))[:, None]
    seen = np.where((sources < 0)[..., None, None, None], GREY, patches[which, np.maximum(sources, 0)])
    rows = [patches, seen]
    for values in (predictions, np.asarray(targets)):
        painted = patches.copy()
        painted[which, places] = picture_patches(values, model)
        rows.append(painted)
    with write_figure(path, 1.5 * len(images) + 1, 1.5 * len(rows)) as figure:
        for axes, title, row in zip(figure.subplots(len(rows), len(images), squeeze=False), TITLES, rows, strict=True):
            for axis, picture in zip(axes, join(row, model.config.grid), strict=True):
                axis.imshow(picture, vmin=0, vmax=1)
                axis.set(xticks=[], yticks=[])
            axes[0].set_ylabel(title)


_registration.register()
