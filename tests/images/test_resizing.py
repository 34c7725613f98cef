"""The size before a crop, computed beforehand and in a TensorFlow graph."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vit.images.pixels import crop_offset, graph_size_before_crop, size_before_crop
from keras_vit.models import Preprocessing

RANDOM = np.random.default_rng(0)
SHAPES = [(1, 1), (224, 224), (427, 640), (10_000, 3), *RANDOM.integers(1, 3000, (40, 2)).tolist()]


@pytest.mark.parametrize("mode", ("center", "squash"))
@pytest.mark.parametrize("crop", (0.875, 0.9, 0.95, 1.0))
def test_one_size_everywhere(crop, mode):
    preprocessing = Preprocessing((224, 160), crop, crop_mode=mode)

    @tf.function(input_signature=[tf.TensorSpec((None, None, 1), "uint8")])
    def graph(image):
        return graph_size_before_crop(image, preprocessing)

    for shape in SHAPES:
        size = size_before_crop(np.array(shape, "float64"), preprocessing).tolist()
        assert graph(np.zeros((*shape, 1), "uint8")).numpy().tolist() == size


def test_offsets_are_rounded_to_even():
    spare = np.arange(9, dtype="int32")
    size = np.stack([spare, spare[::-1]], axis=1) + 32
    expected = np.array([0, 0, 1, 2, 2, 2, 3, 4, 4])  # Python's round of halves
    np.testing.assert_array_equal(
        [crop_offset(x, (32, 32)) for x in size], np.stack([expected, expected[::-1]], axis=1)
    )
    assert expected.tolist() == [round(n / 2) for n in spare.tolist()]
    np.testing.assert_array_equal(crop_offset(tf.constant([35, 37]), (32, 32)), [2, 2])
