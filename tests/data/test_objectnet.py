"""ObjectNet's classes as sets of ImageNet's, and its images without their border."""

import importlib.resources

import numpy as np
import pytest
from PIL import Image

from keras_vit import data, evaluation, zoo
from keras_vit.data.datasets.folder import overlap
from keras_vit.models import Preprocessing

# What ImageNet's own names of the classes are, for some folders of ObjectNet.
NAMES = {
    "alarm_clock": ["analog clock", "digital clock"],
    "bicycle": ["bicycle-built-for-two", "mountain bike"],
    "chair": ["barber chair", "folding chair", "rocking chair"],
    "drying_rack_for_dishes": ["plate rack"],
    "full_sized_towel": ["bath towel"],
    "pen": ["ballpoint", "fountain pen", "quill"],
    "t-shirt": ["jersey"],
    "winter_glove": ["mitten"],
}


def test_the_classes_that_both_have():
    names = importlib.resources.files("keras_vit.zoo").joinpath("labels/imagenet1k.txt").read_text("utf-8").splitlines()
    assert len(overlap()) == 113 and len({number for numbers in overlap().values() for number in numbers}) == 125
    for folder, expected in NAMES.items():
        assert [names[number].partition(",")[0] for number in overlap()[folder]] == expected
    for folder, numbers in overlap().items():
        assert numbers == sorted(numbers) and all(0 <= number < 1000 for number in numbers), folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Images with a red border in folders of ObjectNet's names, of which ImageNet has two."""
    root = tmp_path_factory.mktemp("objectnet-1.0")
    for number, name in enumerate(("alarm_clock", "alarm_clock", "wok", "squeegee")):
        pixels = np.full((20, 24, 3), 40 * number, "uint8")
        pixels[:2] = pixels[-2:] = pixels[:, :2] = pixels[:, -2:] = (255, 0, 0)
        (root / "images" / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(root / "images" / name / f"{number}.png")
    return root


def test_images_come_without_their_border_and_with_all_classes(photos):
    examples = data.load(f"objectnet:{photos}", "test")
    assert examples.num_examples == 3 and examples.num_classes == 1000
    (images, labels, weights), *_ = examples.evaluation(4, Preprocessing((16, 20)), dtype="uint8")
    assert list(weights) == [1, 1, 1, 0]
    for image, value in zip(images.numpy(), (0, 40, 80), strict=False):
        np.testing.assert_array_equal(image, value)
    assert [list(np.flatnonzero(label)) for label in labels.numpy()[:3]] == [[409, 530], [409, 530], [909]]


def test_images_are_cut_as_kolesnikov_et_al_do(tmp_path):
    """The middle 15 of a short side of 16 (480 of 512), whatever the model's own preprocessing, as Pillow has it."""
    inside = np.random.default_rng(0).integers(0, 256, (40, 66, 3), "uint8")
    pixels = np.pad(inside, ((2, 2), (2, 2), (0, 0)))
    (tmp_path / "wok").mkdir()
    Image.fromarray(pixels).save(tmp_path / "wok/a.png")
    expected = np.asarray(Image.fromarray(inside).resize((26, 16), Image.Resampling.BILINEAR))[:15, 6:21]
    for own in (Preprocessing((15, 15)), Preprocessing((15, 15), crop=0.5, crop_mode="squash")):
        (images, *_), *_ = data.load(f"objectnet:{tmp_path}", "test").evaluation(1, own, dtype="uint8")
        np.testing.assert_allclose(images[0].numpy().astype(int), expected, atol=1)


@pytest.mark.slow
def test_each_class_of_the_set_is_right(photos):
    model = zoo.load("ViT-Test/4", weights=None, num_classes=1000)
    bias = np.zeros(1000)
    bias[[530, 909]] = 9, 8
    model.get_layer("head").bias.assign(bias)
    found = evaluation.evaluate(model, data.load(f"objectnet:{photos}", "test"))
    assert (found.top1.right, found.top5.right, found.top1.count) == (2, 3, 3)


def test_what_is_not_objectnet(photos, tmp_path):
    with pytest.raises(data.DataError, match="its only split is 'test'. Received: 'train'"):
        data.load(f"objectnet:{photos}")
    with pytest.raises(data.DataError, match="has no images in folders such as alarm_clock"):
        data.load(f"objectnet:{tmp_path}", "test")
