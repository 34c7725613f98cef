"""The official code's losses and the metrics of logits, for labels as class numbers or as shares of classes."""

from __future__ import annotations

import math

import keras
from keras import ops

from keras_vit.errors import ConfigError

# Thresholds: so many steps of a logit's inverse hyperbolic sine, from -RANGE to RANGE: logits up to 200.
RANGE, STEPS = 6.0, 4096


def to_shares(labels, logits, unknown=0.0):
    """Labels as float rows like `logits`, (..., classes): the share of each class.

    Args:
        labels: class numbers (n,) or (n, 1), or rows (n, classes): one-hot, mixed or of several classes. With one
            logit: 0 or 1, or a share between them, (n,) or (n, 1).
        logits: (n, classes).
        unknown: the shares of a number that is no class.
    """
    classes = logits.shape[-1]
    if len(labels.shape) < len(logits.shape):
        labels = ops.expand_dims(labels, -1)
    if labels.shape[-1] == 1 and classes > 1:
        numbers = ops.cast(labels, "int32")
        known = ops.logical_and(numbers >= 0, numbers < classes)
        labels = ops.where(known, ops.one_hot(ops.squeeze(numbers, -1), classes), unknown)
    if None not in (labels.shape[-1], classes) and labels.shape[-1] != classes:
        raise ConfigError(
            f"Labels must be class numbers, or rows of {classes} classes, as many as the model has. "
            f"Received: labels of shape {tuple(labels.shape)}."
        )
    return ops.cast(labels, logits.dtype)


class ClassLoss(keras.losses.Loss):
    """Base: labels are class numbers (n,) or (n, 1), or float rows (n, classes), as mixup makes them; see `to_shares`.

    Args:
        label_smoothing: share of each label that is spread evenly over the classes, in [0, 1).
        dtype: dtype of the computation.
    """

    unknown = 0.0

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
        return to_shares(labels, logits, self.unknown) * (1.0 - self.label_smoothing) + spread

    def cross_entropy(self, labels, logits):
        """Cross-entropy of labels with the softmax of logits (..., classes): (...)."""
        if logits.shape[-1] == 1:
            raise ConfigError(
                "The softmax of one logit is always 1. Give the model two classes, or use SigmoidLoss for one class."
            )
        return -ops.sum(self.smooth(labels, logits) * ops.log_softmax(logits), axis=-1)

    def get_config(self):
        return {**super().get_config(), "label_smoothing": self.label_smoothing, "dtype": self.dtype}


@keras.saving.register_keras_serializable(package="keras_vit")
class SoftmaxLoss(ClassLoss):
    """Cross-entropy with the softmax of the logits.

    For several predictions per example, logits (n, ..., classes) and class numbers (n, ...), it is their mean. Of a
    number that is no class, below 0 or as large as the number of classes, the loss is NaN.

    >>> f"{SoftmaxLoss()(np.array([1]), np.zeros((1, 4))):.3f}"  # log 4
    '1.386'
    """

    unknown = math.nan

    def call(self, y_true, y_pred):
        losses = self.cross_entropy(y_true, y_pred)
        return ops.mean(losses, axis=tuple(range(1, len(losses.shape)))) if len(losses.shape) > 1 else losses


@keras.saving.register_keras_serializable(package="keras_vit")
class PixelLoss(ClassLoss):
    """Cross-entropy with the softmax of each pixel's logits (n, h, w, classes), for class numbers (n, h, w).

    It is averaged over the pixels of the global batch, by their weights (n, h, w).

    >>> f"{PixelLoss()(np.ones((1, 2, 2)), np.zeros((1, 2, 2, 4)), np.eye(2)[None]):.3f}"  # log 4
    '1.386'
    """

    def call(self, y_true, y_pred):
        return self.cross_entropy(y_true, y_pred)


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


def mark_right(labels, logits):
    """1.0 where the most likely class is correct, else 0.0: (n,)."""
    labels, logits = ops.convert_to_tensor(labels), ops.convert_to_tensor(logits)
    labels = to_shares(labels, ops.cast(logits, "float32"))
    if logits.shape[-1] == 1:
        return ops.cast(ops.equal(labels[..., 0] > 0.5, logits[..., 0] > 0), "float32")
    predicted = ops.expand_dims(ops.argmax(logits, axis=-1), -1)
    share = ops.take_along_axis(labels, predicted, axis=-1)[..., 0]
    return ops.cast(ops.logical_and(share > 0, share >= ops.max(labels, axis=-1)), "float32")


@keras.saving.register_keras_serializable(package="keras_vit")
class Accuracy(keras.metrics.Mean):
    """Share of the examples whose most likely class is correct (top-1).

    The form of the labels is read from every batch. (Keras' "accuracy" keeps the form of the first batch: after mixed
    training labels it counts every example of a validation on class numbers as wrong.)

    - Class numbers, (n,) or (n, 1), and one-hot rows: that class is correct.
    - Mixed rows (mixup, cutmix): the class with the largest share is correct; if two are equal, either.
    - Rows of several classes: any of them is correct, as for ImageNet ReaL (arXiv 2006.07159). An example without a
      class counts as wrong.
    - One logit (n, 1), the yes or no of a sigmoid: labels above 1/2 mean yes, and so do logits above 0.

    >>> metric = Accuracy()
    >>> _ = metric.update_state(np.array([1, 0]), np.array([[0.0, 2.0], [0.0, 2.0]]))
    >>> f"{metric.result():.2f}"
    '0.50'
    """

    _direction = "up"  # tells Keras' callbacks that more is better

    def __init__(self, name: str = "accuracy", dtype: str | None = None):
        super().__init__(name=name, dtype=dtype)

    def update_state(self, y_true, y_pred, sample_weight=None):
        super().update_state(mark_right(y_true, y_pred), sample_weight)


@keras.saving.register_keras_serializable(package="keras_vit")
class MeanAveragePrecision(keras.metrics.Metric):
    """Mean over the classes of the average precision: the sum of (R_k - R_k-1) P_k over falling thresholds.

    The thresholds are 4,096 steps, of 0.003 around 0 and of 0.3 % of larger logits, so that the state has a fixed size
    on any number of replicas; logits that are closer count as equal. `keras_vit.evaluation.evaluate_multi_label` uses
    scikit-learn's average_precision_score, which is the same to about 1e-3. Classes without an example are left out.

    Args:
        num_classes: number of logits.

    >>> metric = MeanAveragePrecision(2)
    >>> metric.update_state(np.array([[1, 0], [0, 1], [0, 1]]), np.array([[2.0, 1.0], [0.0, 3.0], [3.0, 0.0]]))
    >>> f"{metric.result():.3f}"  # (1/2 + (1 + 2/3) / 2) / 2
    '0.667'
    """

    _direction = "up"  # tells Keras' callbacks that more is better

    def __init__(self, num_classes: int, name: str = "mean_average_precision", dtype: str | None = None):
        super().__init__(name=name, dtype=dtype)
        self.num_classes = num_classes
        # (2, classes, steps): total weight of the examples with, and without, each class, by the step of their logit.
        shape = (num_classes, STEPS)
        self.positives = self.add_variable(shape, initializer="zeros", name="positives")
        self.negatives = self.add_variable(shape, initializer="zeros", name="negatives")

    def update_state(self, y_true, y_pred, sample_weight=None):
        logits = ops.cast(ops.convert_to_tensor(y_pred), "float32")
        labels = to_shares(ops.convert_to_tensor(y_true), logits)
        weights = ops.ones_like(labels)
        if sample_weight is not None:
            weights = weights * ops.reshape(ops.cast(sample_weight, "float32"), (-1, 1))
        scaled = ops.clip(ops.arcsinh(logits), -RANGE, RANGE)
        step = ops.floor((scaled + RANGE) * ((STEPS - 1) / (2 * RANGE)))
        place = ops.cast(step, "int32") + STEPS * ops.arange(self.num_classes, dtype="int32")
        for variable, share in ((self.positives, labels), (self.negatives, 1 - labels)):
            values, places = ops.reshape(share * weights, (-1,)), ops.reshape(place, (-1,))
            added = ops.segment_sum(values, places, num_segments=self.num_classes * STEPS)
            variable.assign(variable + ops.reshape(added, (self.num_classes, STEPS)))

    def result(self):
        right, wrong = (ops.cumsum(ops.flip(v, axis=1), axis=1) for v in (self.positives, self.negatives))
        total = right[:, -1]
        gained = right - ops.pad(right[:, :-1], ((0, 0), (1, 0)))
        precision = ops.divide_no_nan(right, right + wrong)
        average = ops.divide_no_nan(ops.sum(gained * precision, axis=1), total)
        return ops.divide_no_nan(ops.sum(average), ops.sum(ops.cast(total > 0, "float32")))

    def get_config(self):
        return {**super().get_config(), "num_classes": self.num_classes}
