"""Distillation: a model learns the answers of a larger one.

"Knowledge distillation: A good teacher is patient and consistent" (arXiv 2106.05237): both see the very same crops and
mixtures of images ("function matching", section 3), and no labels are used. It takes many epochs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras
import numpy as np

from keras_vit.models.folding import fold
from keras_vit.models.preprocessing import Preprocessing, to_probabilities

if TYPE_CHECKING:
    import tensorflow as tf


def answer(teacher, images):
    """The probabilities (n, classes), float32, of images (n, h, w, c) in [0, 1]."""
    import tensorflow as tf

    own = teacher.preprocessing
    pixels = tf.image.resize(images, own.image_size, own.interpolation, antialias=True)
    inputs = (pixels - np.array(own.mean, "float32")) / np.array(own.std, "float32")
    return to_probabilities(teacher.predict_on_batch(inputs.numpy()).astype("float32"), teacher)


def with_answers(batches: tf.data.Dataset, teacher: keras.Model, seen: Preprocessing) -> tf.data.Dataset:
    """Batches (images, labels, ...) for training, with the teacher's probabilities of these images as labels.

    Args:
        batches: of `examples.train`, images (n, h, w, c).
        teacher: a model of the same classes; of another image size, it sees the images resized.
        seen: the preprocessing that the batches have: the student's.

    >>> recipe = keras_vit.training.recipe("mini-vit", label_smoothing=0)
    >>> batches = keras_vit.data.load("digits").train(8, student.preprocessing)  # doctest: +SKIP
    >>> student.fit(with_answers(batches, teacher, student.preprocessing))  # doctest: +SKIP
    """
    import tensorflow as tf

    folded, classes = fold(teacher), teacher.output_shape[-1]

    def label(images, labels, *weights):
        pixels = images * np.array(seen.std, "float32") + np.array(seen.mean, "float32")
        answers = tf.numpy_function(lambda x: answer(folded, x), [pixels], tf.float32)
        return images, tf.ensure_shape(answers, (images.shape[0], classes)), *weights

    return batches.map(label)
