"""The models against the authors' own code: checkpoints and logits in tests/golden (its README says whose)."""

import pathlib

import keras
import numpy as np
import pytest

from keras_vit import models, zoo

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
NAMES = ("vit_token", "vit_prelogits", "vit_gap_linen", "hybrid_1_1_2", "bit_1_2_1_1")


def reference(name):
    with np.load(GOLDEN / f"{name}.io.npz") as io:
        return io["images"], io["logits"]


@pytest.mark.parametrize("name", NAMES)
def test_logits(name):
    images, logits = reference(name)
    model = zoo.load(GOLDEN / f"{name}.npz")
    for each in (model, models.fold(model)):
        np.testing.assert_allclose(keras.ops.convert_to_numpy(each(images)), logits, rtol=0, atol=1e-4)


def test_resized_position_embeddings():
    images, logits = reference("vit_token@56")
    model = zoo.load(GOLDEN / "vit_token.npz", image_size=56)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(model(images)), logits, rtol=0, atol=1e-4)
