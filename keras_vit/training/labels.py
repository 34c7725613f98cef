"""Labels of every form as rows of shares: class numbers, one-hot, mixed, of several classes."""

from keras import ops

from keras_vit.errors import ConfigError


def to_shares(labels, logits):
    """Labels as float rows like `logits`, (..., classes): the share of each class.

    Args:
        labels: class numbers (n,) or (n, 1), or rows (n, classes): one-hot, mixed or of several classes. With one
            logit: 0 or 1, or a share between them, (n,) or (n, 1).
        logits: (n, classes).

    Raises:
        ConfigError: if rows have another number of classes than the logits.
    """
    classes = logits.shape[-1]
    if len(labels.shape) < len(logits.shape):
        labels = ops.expand_dims(labels, -1)
    if labels.shape[-1] == 1 and classes > 1:
        labels = ops.one_hot(ops.cast(ops.squeeze(labels, -1), "int32"), classes)
    if None not in (labels.shape[-1], classes) and labels.shape[-1] != classes:
        raise ConfigError(
            f"Labels must be class numbers, or rows of {classes} classes, as many as the model has. "
            f"Received: labels of shape {tuple(labels.shape)}."
        )
    return ops.cast(labels, logits.dtype)
