"""Accuracy of logits, whatever the form of the labels."""

import keras
from keras import ops

from keras_vit.training.labels import shares


@keras.saving.register_keras_serializable(package="keras_vit")
class Accuracy(keras.metrics.Mean):
    """Share of the examples whose likeliest class is right (top-1).

    Every batch is read in the form that its labels have: Keras' "accuracy" settles on the form of the first, and calls
    all wrong where training labels are mixed and those of validation are not.

    - Class numbers, (n,) or (n, 1), and one-hot rows: the class itself is right.
    - Mixed rows (mixup, cutmix): the class with the largest share; either of two that share alike.
    - Rows of several classes: each of them, as for ImageNet ReaL (arXiv 2006.07159). An example without any is wrong.
    - One logit (n, 1), the yes or no of a sigmoid: labels above 1/2 are yes, as logits above 0.

    >>> metric = Accuracy()
    >>> metric.update_state(numpy.array([1, 0]), numpy.array([[0.0, 2.0], [0.0, 2.0]]))
    >>> float(metric.result())
    0.5
    """

    _direction = "up"  # where Keras' callbacks look whether more is better

    def __init__(self, name="accuracy", dtype=None):
        super().__init__(name=name, dtype=dtype)

    def update_state(self, y_true, y_pred, sample_weight=None):
        super().update_state(right(y_true, y_pred), sample_weight)


def right(labels, logits):
    """1.0 where the likeliest class is right, else 0.0: (n,)."""
    labels, logits = ops.convert_to_tensor(labels), ops.convert_to_tensor(logits)
    labels = shares(labels, ops.cast(logits, "float32"))
    if logits.shape[-1] == 1:
        return ops.cast(ops.equal(labels[..., 0] > 0.5, logits[..., 0] > 0), "float32")
    predicted = ops.expand_dims(ops.argmax(logits, axis=-1), -1)
    share = ops.take_along_axis(labels, predicted, axis=-1)[..., 0]
    return ops.cast(ops.logical_and(share > 0, share >= ops.max(labels, axis=-1)), "float32")
