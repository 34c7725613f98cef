"""Models for inference alone: operations on weights alone are computed once, not in every call."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_vit.errors import ConfigError
from keras_vit.lora import rebuild
from keras_vit.models.classifier import Classifier, find_quantization
from keras_vit.models.vectors import choose_predict

TOLERANCE = 1e-5  # of the largest output


class Folded:
    """Overrides methods of a folded model's class; it comes first among the bases.

    Attributes:
        restore: returns the model that this one was folded from.
        given: {name: value} of preprocessing and labels that were set since.
    """

    restore: Callable[[], Classifier]
    given: dict[str, Any]

    @property
    def folded_from(self) -> Classifier:
        """The model before folding, with what was set since; its weights can be saved and trained."""
        model = self.restore()
        for name, value in self.given.items():
            setattr(model, name, value)
        return model

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name in ("preprocessing", "labels"):
            self.given[name] = value

    def __repr__(self):
        return f"<{type(self).__name__} name={self.name}, folded for inference>"  # type: ignore[attr-defined]

    def make_train_function(self, force=False):
        raise ConfigError(f"{self!r} cannot be trained. Train model.folded_from, and fold it again.")

    def save(self, *arguments: Any, **options: Any):
        """Saves the model that this one was folded from."""
        return self.folded_from.save(*arguments, **options)

    def get_config(self):
        raise ConfigError(f"{self!r} has no configuration to copy or to save as a part. Take model.folded_from.")

    def load_weights(self, *arguments: Any, **options: Any):
        raise ConfigError(f"{self!r} takes no weights. Load them into model.folded_from, and fold it again.")

    def save_weights(self, *arguments: Any, **options: Any):
        """Saves the weights of the model that this one was folded from."""
        return self.folded_from.save_weights(*arguments, **options)


def can_fold(model: Any) -> bool:
    """Whether it is one of this package's models, in full precision, and not folded yet."""
    return (
        isinstance(model, Classifier)
        and not isinstance(model, Folded)
        and model.compute_dtype in ("float32", "float64")
        and not find_quantization(model)
    )


def fold_in_place(model: Any, restore: Callable[[], Classifier]) -> Any:
    """Folds a model if that is possible; nobody else may hold a reference to it.

    Args:
        restore: returns the model before folding, for saving and training.
    """
    if not can_fold(model):
        return model
    for layer in model._flatten_layers():  # layers within layers, too
        # Blocks fold their own attention and MLP, which have products to fold.
        if hasattr(layer, "fold") and not hasattr(layer, "fold_products"):
            layer.fold()
    cls = type(model)
    model.__class__ = type(cls.__name__, (Folded, cls), {"__module__": cls.__module__, "__doc__": cls.__doc__})
    vars(model).update(restore=restore, given={})  # which Keras would track
    model.trainable = False
    return model


def fold(model: Classifier) -> Classifier:
    """Makes a faster copy of a model, for inference alone.

    Kernels are standardized once (ResNets and hybrids take 0.75 of the time on a CPU). Scale and shift of the norms,
    LayerScale, and the biases of keys and values are folded into the dense layers beside them. The outputs of both are
    compared for one image, in float64 where float32 rounds a deep model's further apart. `folded_from` of the copy is
    the original model; `save` and `zoo.save` write that.

    Args:
        model: one of this package's, in float32 or float64; it is not changed. LoRA's factors become part of kernels.

    Raises:
        ConfigError: for any other model, or when the outputs differ by more than 1e-5 of the largest.

    >>> model = keras_vit.zoo.load("ViT-Test/4", weights=None)
    >>> keras_vit.models.fold(model)
    <VisionTransformer name=ViT-Test_4, folded for inference>
    """
    if isinstance(model, Folded):
        return model
    if not can_fold(model):
        raise ConfigError(
            f"Only models of this package in float32 or float64 can be folded. Received: {model!r}, in "
            f"{getattr(getattr(model, 'dtype_policy', None), 'name', 'no known type')}."
        )
    folded = fold_in_place(copy_model(model), lambda: model)
    require_equal(model, folded)
    return folded


def copy_model(model, **changes):
    """A model with the same weights, LoRA's factors added to its kernels, and other entries of `get_config`."""
    return rebuild(model, model.get_config() | changes)


def answer(model):
    """The model's output for an image of noise."""
    config = model.config
    shape = (1, *(config.own_size or (64, 64)), config.num_channels)
    image = np.random.default_rng(0).uniform(-1, 1, shape).astype(model.compute_dtype)
    return keras.ops.convert_to_numpy(choose_predict(model)(image))


def find_difference(found, expected):
    return np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-30)


def require_equal(model, folded):
    """Raises a ConfigError unless both models give equal outputs."""
    difference = find_difference(answer(folded), answer(model))
    if difference > TOLERANCE and model.compute_dtype == "float32":
        exact = copy_model(model, dtype="float64")
        expected = answer(exact)
        difference = find_difference(answer(fold_in_place(exact, lambda: model)), expected)
    if not difference <= TOLERANCE:
        raise ConfigError(
            f"{model.name} cannot be folded: its outputs would differ by {difference:.1e} of the largest. Expected at "
            f"most {TOLERANCE:g}. Use it as it is."
        )
