"""tools/class_vectors.py and zoo.zero_shot against transformers' own CLIP and SigLIP, tiny and random."""

import importlib.util

import numpy as np
import pytest

from keras_vit import zoo
from keras_vit.errors import CheckpointError

if importlib.util.find_spec("transformers") is None:
    pytest.skip("transformers is not installed", allow_module_level=True)

import class_vectors
import transformers
import transformers_models
from random_models import draw_images, randomize

NAMES = ["cat", "dog", "Sleeping dog"]
PROMPTS = ["a photo of a {}.", "{} in the wild"]
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
PAIRS = [row for row in transformers_models.ROWS if row[0] in ("CLIPModel", "SiglipModel")]


class Tokenizer:
    """Words by the sum of their letters, in place of a vocabulary."""

    def __call__(self, texts, padding, truncation, return_tensors, max_length=8):
        ids = [[0, *(2 + sum(map(ord, word)) % 37 for word in text.split()[:6]), 1] for text in texts]
        longest = max_length if padding == "max_length" else max(map(len, ids))
        mask = [[1] * len(row) + [0] * (longest - len(row)) for row in ids]
        ids = [row + [1] * (longest - len(row)) for row in ids]
        return {"input_ids": np.array(ids), "attention_mask": np.array(mask)}


def torch_tokens(texts, **options):
    import torch

    return {name: torch.from_numpy(values) for name, values in Tokenizer()(texts, **options).items()}


@needs_torch
@pytest.mark.parametrize("row", PAIRS, ids=lambda row: f"{row[0]} {row[1]}".strip())
def test_logits_are_those_of_transformers(row, tmp_path):
    import torch

    model = randomize(transformers_models.build(row))
    model.save_pretrained(tmp_path)
    try:
        towers = zoo.load(tmp_path / "model.safetensors")
    except CheckpointError as error:
        pytest.skip(str(error))
    np.savez(tmp_path / "pets.npz", **class_vectors.make_class_vectors(model, torch_tokens, NAMES, PROMPTS[:1]))
    classifier = zoo.zero_shot(towers, **np.load(tmp_path / "pets.npz"))
    images = draw_images((32, 32), count=3)
    tokens = class_vectors.tokenize([PROMPTS[0].replace("{}", name) for name in NAMES], torch_tokens, model.config)
    with torch.no_grad():
        expected = model(**tokens, pixel_values=torch.from_numpy(images.transpose(0, 3, 1, 2).copy())).logits_per_image
    found = np.asarray(classifier(images))
    assert np.abs(found - expected.numpy()).max() < 1e-5 * np.abs(expected.numpy()).max()
    assert classifier.labels == tuple(NAMES)
    assert classifier.config.probabilities == ("sigmoid" if row[0] == "SiglipModel" else "softmax")


@needs_torch
@pytest.mark.parametrize("row", PAIRS[:1])
def test_several_prompts_are_averaged_at_length_1(row):
    model = randomize(transformers_models.build(row))
    both = class_vectors.make_class_vectors(model, torch_tokens, NAMES, PROMPTS)["class_vectors"]
    apart = [class_vectors.make_class_vectors(model, torch_tokens, NAMES, [p])["class_vectors"] for p in PROMPTS]
    np.testing.assert_allclose(np.linalg.norm(apart, axis=2), 1, rtol=1e-6)
    np.testing.assert_allclose(both, np.mean(apart, axis=0), rtol=1e-5, atol=1e-7)


def test_only_siglip_reads_small_letters_of_one_length():
    tokens = {}
    for row in PAIRS:
        config = getattr(transformers, row[0].replace("Model", "Config"))(**row[2])
        tokens[row[0]] = [class_vectors.tokenize([text], Tokenizer(), config) for text in ("A Cat", "a cat")]
    capital, small = (each["input_ids"].tolist() for each in tokens["SiglipModel"])
    assert capital == small and len(small[0]) == 8 and tokens["SiglipModel"][0].keys() == {"input_ids"}
    assert tokens["CLIPModel"][0]["input_ids"].tolist() != tokens["CLIPModel"][1]["input_ids"].tolist()
