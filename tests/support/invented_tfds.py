"""TFDS's own builders, prepared on disk with a few invented examples."""

from unittest import mock

import numpy as np
import tensorflow_datasets as tfds


def invented(feature, i, rng):
    """An example of a TFDS feature, different for every i."""
    if isinstance(feature, tfds.features.Image):
        height, width, channels = (side or 8 for side in feature.shape)
        return np.full((height, width, channels), i % 256, "uint8")
    if isinstance(feature, tfds.features.ClassLabel):
        return i % feature.num_classes
    if isinstance(feature, tfds.features.BBoxFeature):
        return tfds.features.BBox(0.1, 0.1, 0.2, 0.2)
    if isinstance(feature, tfds.features.Text):
        return str(i)
    if isinstance(feature, tfds.features.Sequence):
        length = 3 + i % 8 if isinstance(feature.feature, tfds.features.FeaturesDict) else i % 3
        return [invented(feature.feature, i + j, rng) for j in range(length)]
    if isinstance(feature, tfds.features.FeaturesDict):
        return {key: invented(part, i, rng) for key, part in feature.items()}
    return rng.uniform(0, 30, feature.shape).astype(feature.np_dtype)


def prepare(name, folder, config=None, **splits):
    """Prepares TFDS's own builder `name` in `folder` with so many invented examples per split."""
    builder = tfds.builder(name, data_dir=folder)

    def examples(count):
        rng = np.random.default_rng(0)
        for i in range(count):
            yield i, invented(builder.info.features, i, rng)

    def generators(self, manager):
        return {split: examples(count) for split, count in splits.items()}

    with mock.patch.object(type(builder), "_split_generators", generators):
        builder.download_and_prepare(download_config=config)
