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
    """Replaces the labels of training batches (images, labels, ...) by the teacher's probabilities for these images.

    Args:
        batches: from `examples.train`, images (n, h, w, c).
        teacher: a model of the same classes; if its image size differs, images are resized for it.
        seen: the preprocessing of the batches, the student's.

    >>> keras_vit.training.recipe("mini-vit", label_smoothing=0).compile(model)  # doctest: +SKIP
    >>> batches = keras_vit.data.load("digits").train(8, model.preprocessing)  # doctest: +SKIP
    >>> model.fit(with_answers(batches, keras_vit.zoo.load("runs/1"), model.preprocessing))  # doctest: +SKIP
    """
    import tensorflow as tf

    folded, classes = fold(teacher), teacher.output_shape[-1]

    def label(images, labels, *weights):
        pixels = images * np.array(seen.std, "float32") + np.array(seen.mean, "float32")
        answers = tf.numpy_function(lambda x: answer(folded, x), [pixels], tf.float32)
        return images, tf.ensure_shape(answers, (images.shape[0], classes)), *weights

    return batches.map(label)
