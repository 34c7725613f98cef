"""Accuracy of logits, whatever the form of the labels."""

import keras
from keras import ops

from keras_vit.training.labels import to_shares


def mark_right(labels, logits):
    """1.0 where the likeliest class is right, else 0.0: (n,)."""
    labels, logits = ops.convert_to_tensor(labels), ops.convert_to_tensor(logits)
    labels = to_shares(labels, ops.cast(logits, "float32"))
    if logits.shape[-1] == 1:
        return ops.cast(ops.equal(labels[..., 0] > 0.5, logits[..., 0] > 0), "float32")
    predicted = ops.expand_dims(ops.argmax(logits, axis=-1), -1)
    share = ops.take_along_axis(labels, predicted, axis=-1)[..., 0]
    return ops.cast(ops.logical_and(share > 0, share >= ops.max(labels, axis=-1)), "float32")


@keras.saving.register_keras_serializable(package="keras_vit")
class Accuracy(keras.metrics.Mean):
    """Share of the examples whose likeliest class is right (top-1).

    The form of the labels is read from every batch. (Keras' "accuracy" keeps to the form of the first batch, and counts
    every example as wrong where training labels are mixed and validation labels are class numbers.)

    - Class numbers, (n,) or (n, 1), and one-hot rows: the class itself is right.
    - Mixed rows (mixup, cutmix): the class with the largest share is right; if two are equal, either.
    - Rows of several classes: any of them is right, as for ImageNet ReaL (arXiv 2006.07159). An example without a class
      counts as wrong.
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
