"""Operations of TensorFlow that TFLite lacks, said in those that it has."""

import contextlib


def roll_by_slices(x, shift, axis, name=None):
    """tf.roll: of each axis, the last `shift` places moved in front of the others."""
    import tensorflow as tf

    shifts, axes = (list(n) if isinstance(n, list | tuple) else [n] for n in (shift, axis))
    for places, along in zip(shifts, axes, strict=True):
        length = x.shape[along]
        places = places % length
        if places:
            rest, end = tf.split(x, [length - places, places], axis=along)
            x = tf.concat([end, rest], axis=along)
    return tf.identity(x, name=name)


@contextlib.contextmanager
def builtin_operators():
    """Within, what keras.ops.roll traces to are operators that TFLite has; Keras takes the function by its name."""
    import tensorflow as tf

    roll = tf.roll
    tf.roll = roll_by_slices
    try:
        yield
    finally:
        tf.roll = roll
