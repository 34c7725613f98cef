"""The official code's losses for logits, with labels as class numbers or as shares of classes."""

from __future__ import annotations

import keras
from keras import ops

from keras_vit.errors import ConfigError
from keras_vit.training.metrics import to_shares


class ClassLoss(keras.losses.Loss):
    """Base: labels are class numbers (n,) or (n, 1), or float rows (n, classes), as mixup makes them; see `to_shares`.

    Args:
        label_smoothing: share of each label that is spread evenly over the classes, in [0, 1).
        dtype: dtype of the computation.
    """

    def __init__(
        self,
        label_smoothing: float = 0.0,
        reduction: str | None = "mean_with_sample_weight",
        name: str | None = None,
        dtype: str = "float32",
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.label_smoothing = label_smoothing

    def smooth(self, labels, logits):
        """Smooths labels (n, classes); labels of one logit move towards 1/2."""
        spread = self.label_smoothing / max(logits.shape[-1], 2)
        return to_shares(labels, logits) * (1.0 - self.label_smoothing) + spread

    def get_config(self):
        return {**super().get_config(), "label_smoothing": self.label_smoothing, "dtype": self.dtype}


@keras.saving.register_keras_serializable(package="keras_vit")
class SoftmaxLoss(ClassLoss):
    """Cross-entropy with the softmax of the logits.

    For several predictions per example, logits (n, ..., classes) and class numbers (n, ...), it is their mean.

    >>> f"{SoftmaxLoss()(np.array([1]), np.zeros((1, 4))):.3f}"  # log 4
    '1.386'
    """

    def call(self, y_true, y_pred):
        if y_pred.shape[-1] == 1:
            raise ConfigError("The softmax of one logit is always 1. Give the model two classes, or use SigmoidLoss.")
        losses = -ops.sum(self.smooth(y_true, y_pred) * ops.log_softmax(y_pred), axis=-1)
        return ops.mean(losses, axis=tuple(range(1, len(losses.shape)))) if len(losses.shape) > 1 else losses


@keras.saving.register_keras_serializable(package="keras_vit")
class PixelLoss(ClassLoss):
    """Cross-entropy with the softmax of each pixel's logits (n, h, w, classes), for class numbers (n, h, w).

    It is averaged over the pixels of the global batch, by their weights (n, h, w).

    >>> f"{PixelLoss()(np.ones((1, 2, 2)), np.zeros((1, 2, 2, 4)), np.eye(2)[None]):.3f}"  # log 4
    '1.386'
    """

    def call(self, y_true, y_pred):
        return -ops.sum(self.smooth(y_true, y_pred) * ops.log_softmax(y_pred), axis=-1)


@keras.saving.register_keras_serializable(package="keras_vit")
class SigmoidLoss(ClassLoss):
    """Sum over the classes of each class's binary cross-entropy, as in the official code (Keras takes the mean).

    A label may name several classes; with one logit it is 0 or 1.

    >>> f"{SigmoidLoss()(np.array([1]), np.zeros((1, 4))):.3f}"  # 4 log 2
    '2.773'
    """

    def call(self, y_true, y_pred):
        labels = self.smooth(y_true, y_pred)
        return -ops.sum(labels * ops.log_sigmoid(y_pred) + (1.0 - labels) * ops.log_sigmoid(-y_pred), axis=-1)


@keras.saving.register_keras_serializable(package="keras_vit")
class SquaredError(keras.losses.Loss):
    """The mean squared difference (L2) over the values of each example, (n, ...): one number per example.

    >>> SquaredError()(np.zeros((1, 2, 2)), np.array([[[1.0, 1.0], [1.0, 3.0]]])).numpy().item()
    3.0
    """

    def __init__(
        self, reduction: str | None = "mean_with_sample_weight", name: str | None = None, dtype: str = "float32"
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)

    def call(self, y_true, y_pred):
        errors = ops.square(y_pred - y_true)
        return ops.mean(errors, axis=tuple(range(1, len(errors.shape))))

    def get_config(self):
        return {**super().get_config(), "dtype": self.dtype}
