"""Augmentation that is left to the model: its images are those of the host, and so is what is learned."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from photographs import flower

from keras_vit import data, models, training
from keras_vit.data.augment import deferred, randaugment
from keras_vit.data.examples import Examples
from keras_vit.data.reading.sources import Pixels
from keras_vit.images import augmenting
from keras_vit.images.operations import OPERATIONS, measure

PREPROCESSING = models.Preprocessing((16, 16), mean=(0.4, 0.5, 0.6), std=(0.3, 0.2, 0.3))
BOTH = data.Augmentation(crop="resize", randaugment=(2, 15), mixup=0.5, cutmix=1.0)
EVERYTHING = {
    "mixup": data.Augmentation(crop="resize", mixup=0.5),
    "cutmix": data.Augmentation(crop="resize", cutmix=0.5),
    "all": BOTH,
}


def parts(count, height, width):
    """Parts of a photograph, uint8 (count, height, width, 3)."""
    corners = np.random.default_rng(0).integers(0, 300, (count, 2))
    return np.stack([flower()[y : y + height, x : x + width] for y, x in corners])


def pictures():
    """40 examples of 16 x 16 pixels, which a model of that size takes as they are."""
    return Examples("parts", "train", tuple("abcd"), Pixels(parts(40, 16, 16), np.arange(40) % 4))


@pytest.mark.parametrize(("magnitude", "channels"), [(0, 1), (4, 3), (15, 1), (20, 3)])
def test_every_operation_is_the_hosts(magnitude, channels):
    count = 2 * len(OPERATIONS)
    images = parts(count, 36, 52)[..., :channels]
    draws = np.random.default_rng(magnitude).uniform(size=(count, 1, 4)).astype("float32")
    draws[:, 0, 0] = (np.arange(count) % len(OPERATIONS) + 0.5) / len(OPERATIONS)
    draws[:, 0, 1] = np.arange(count) < len(OPERATIONS)
    described = (part.numpy() for part in deferred.describe_operations(tf.constant(draws), magnitude, 36, 52))
    found = keras.ops.convert_to_numpy(augmenting.augment(*map(keras.ops.convert_to_tensor, (images, *described))))
    strength = measure(magnitude, 36, 52)
    for image, draw, result in zip(images, draws[:, 0], found, strict=True):
        chosen = randaugment.choose(tf.constant(draw), strength, 36, 52)
        expected = randaugment.apply_one(tf.constant(image, tf.float32), strength, *chosen).numpy()
        name = list(OPERATIONS)[int(draw[0] * len(OPERATIONS))]
        assert np.mean(result != expected) < 1e-3, name  # where a place or a sum is rounded to the other side


@pytest.mark.parametrize("name", EVERYTHING)
def test_batches_become_the_hosts(name):
    examples, options = pictures(), {"augmentation": EVERYTHING[name], "steps": 6}
    on_host = examples.train(8, PREPROCESSING, **options)
    left = examples.train(8, PREPROCESSING, augment_on="device", **options)
    for (images, labels), (batch, same_labels) in zip(on_host, left, strict=True):
        batch = tf.nest.map_structure(lambda part: keras.ops.convert_to_tensor(part.numpy()), batch)
        finished = keras.ops.convert_to_numpy(PREPROCESSING.normalize(augmenting.finish(batch)))
        assert np.mean(np.abs(finished - images.numpy()) > 1e-5) < 1e-3
        np.testing.assert_array_equal(labels, same_labels)


def test_nothing_is_left_where_nothing_is_random():
    images, _ = next(iter(pictures().train(8, PREPROCESSING, augmentation="flip", augment_on="device")))
    assert images.dtype == tf.float32


def test_other_entries_of_a_dict_change_nothing():
    sizes = dict(image_size=16, patch_size=8, hidden_size=16, num_layers=1, num_heads=2, mlp_dim=32, num_classes=0)
    model, images = models.VisionTransformer(**sizes), np.random.default_rng(0).normal(size=(2, 16, 16, 3))
    found = model({"images": images.astype("float32"), "numbers": np.arange(2)})
    np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, (found, model(images.astype("float32")))))


def trained(microbatches=1, **options):
    """The weights of a small model after 12 steps."""
    keras.utils.set_random_seed(0)
    sizes = dict(image_size=16, patch_size=8, hidden_size=16, num_layers=1, num_heads=2, mlp_dim=32)
    model = models.VisionTransformer(num_classes=4, preprocessing=PREPROCESSING, **sizes)
    rng = np.random.default_rng(1)
    for variable in model.trainable_variables:
        variable.assign(variable + 0.1 * rng.standard_normal(variable.shape).astype("float32"))
    optimizer = training.SGD(0.1, momentum=0.9, global_clipnorm=1.0)
    model.compile(optimizer, training.SoftmaxLoss(), weighted_metrics=[training.Accuracy()])
    model.microbatches = microbatches
    model.fit(pictures().train(8, model.preprocessing, augmentation=BOTH, steps=12, **options), verbose=0)
    return np.concatenate([np.ravel(keras.ops.convert_to_numpy(weight)) for weight in model.trainable_variables])


def test_a_model_learns_the_same():
    microbatches = 1 if keras.backend.backend() == "torch" else 2  # each has the partners that it needs
    np.testing.assert_allclose(trained(microbatches, augment_on="device"), trained(), atol=1e-5)
