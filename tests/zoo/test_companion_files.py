"""The JSON files beside weights: what is read of them, and what counts as none."""

import json

import pytest

from keras_vit.zoo.formats.torch.stated import MOST_BYTES, read_companions, stated_labels


def test_files_and_links_are_read(tmp_path):
    """The cache of huggingface_hub has links in place of files."""
    (tmp_path / "blob").write_text('{"crop_pct": 0.9}')
    (tmp_path / "preprocessor_config.json").symlink_to(tmp_path / "blob")
    (tmp_path / "config.json").write_text('{"num_classes": 3}')
    assert read_companions(tmp_path / "model.safetensors") == ({"num_classes": 3}, {"crop_pct": 0.9})


@pytest.mark.parametrize("content", ["", "[1]", "3", "{", "[" * 100_000, json.dumps({"a": "x" * MOST_BYTES})])
def test_what_is_not_an_object_of_bounded_size_counts_as_none(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    assert read_companions(tmp_path / "model.safetensors") == ({}, {})


@pytest.mark.parametrize(
    ("stated", "labels"),
    [
        ({"label_names": ["cat", "dog"]}, ("cat", "dog")),
        ({"id2label": {"1": "dog", "0": "cat"}}, ("cat", "dog")),
        ({"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}, None),
        ({"id2label": {"0": "cat", "2": "dog"}}, None),
        ({"label_names": ["cat"]}, None),
        ({"label_names": ["cat", 3]}, None),
        ({"label_names": "ab"}, None),
        ({}, None),
    ],
)
def test_labels(stated, labels):
    assert stated_labels(stated, 2) == labels
