"""The official code's losses of logits, of class numbers or of shares per class."""

import keras
from keras import ops


class ClassLoss(keras.losses.Loss):
    """Base: labels are class numbers (n,) or (n, 1), or float rows (n, classes), as mixup makes them.

    Args:
        label_smoothing: share of each label spread evenly over the classes, in [0, 1).
    """

    def __init__(self, label_smoothing=0.0, reduction="mean_with_sample_weight", name=None):
        super().__init__(name=name, reduction=reduction, dtype="float32")
        self.label_smoothing = label_smoothing

    def rows(self, labels, logits):
        """Labels as (n, classes), smoothed."""
        classes = logits.shape[-1]
        if len(labels.shape) == len(logits.shape) and labels.shape[-1] == 1 and classes > 1:
            labels = ops.squeeze(labels, -1)
        if len(labels.shape) < len(logits.shape):
            labels = ops.one_hot(ops.cast(labels, "int32"), classes)
        labels = ops.cast(labels, logits.dtype)
        return labels * (1.0 - self.label_smoothing) + self.label_smoothing / classes

    def get_config(self):
        return {"label_smoothing": self.label_smoothing, "reduction": self.reduction, "name": self.name}


@keras.saving.register_keras_serializable(package="keras_vit")
class SoftmaxLoss(ClassLoss):
    """Cross-entropy with the softmax of the logits.

    >>> float(SoftmaxLoss()(numpy.array([1]), numpy.zeros((1, 4))))  # log 4
    1.386
    """

    def call(self, y_true, y_pred):
        return -ops.sum(self.rows(y_true, y_pred) * ops.log_softmax(y_pred), axis=-1)


@keras.saving.register_keras_serializable(package="keras_vit")
class SigmoidLoss(ClassLoss):
    """Sum over the classes of the cross-entropy of each class alone, as in the official code (Keras' is the mean).

    >>> float(SigmoidLoss()(numpy.array([1]), numpy.zeros((1, 4))))  # 4 log 2
    2.773
    """

    def call(self, y_true, y_pred):
        labels = self.rows(y_true, y_pred)
        return -ops.sum(labels * ops.log_sigmoid(y_pred) + (1.0 - labels) * ops.log_sigmoid(-y_pred), axis=-1)


LOSSES = {"softmax": SoftmaxLoss, "sigmoid": SigmoidLoss}
