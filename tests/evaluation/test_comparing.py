"""Candidates side by side: what is measured of each, and which one is recommended."""

import json
import subprocess
import sys

import numpy as np
import pytest

from keras_vit import data, evaluation, export, inference, zoo
from keras_vit.evaluation.scores import Candidate, Share, draw_comparison, recommend


def candidate(name, right, size, milliseconds=1.0):
    return Candidate(name, Share(right, 1000), np.arange(1000) < right, size, milliseconds, 10)


def test_the_smallest_that_loses_little_is_recommended():
    large, small, tiny = candidate("large", 900, 100), candidate("small", 896, 50, 3.0), candidate("tiny", 890, 10)
    chosen, why = recommend([tiny, large, small])
    assert chosen is small and "0.4 points to the best, large" in why and "large is faster: 1.0 ms" in why
    assert recommend([large, tiny]) == (large, "Take large: every other one loses at least 0.5 points.")
    assert recommend([large, candidate("half", 895, 10)])[0] is large  # half a point is too much
    assert recommend([candidate("model", 900, None), candidate("file", 900, 10)])[0].name == "file"
    nearly = [Candidate(str(n), Share(9000 + n, 10_000), None, n, 1.0, 10) for n in (1, 2)]
    assert "and loses 0.01 points to the best, 2" in recommend(nearly)[1]


def test_agreement_is_with_the_first_and_the_figure_shows_all(tmp_path):
    first, other = candidate("a", 900, 100), candidate("b [brown] $x$", 800, None)
    assert other.as_dict(first)["agreement"] == 0.9 and other.as_dict(first)["interval"] == list(other.top1.interval)
    draw_comparison([first, other], tmp_path / "c.png")
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


def run(*arguments):
    done = subprocess.run([sys.executable, "-m", "keras_vit", "compare", *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_the_command_measures_every_artefact_of_a_bundle(tmp_path):
    model = zoo.load("ViT-Test/4", weights=None, num_classes=10)
    rng = np.random.default_rng(0)
    model.set_weights([weight + rng.normal(0, 0.05, weight.shape) for weight in model.get_weights()])
    zoo.save(model, tmp_path / "m.keras")
    export.bundle(model, tmp_path / "dist", ["onnx", "tflite"])
    model.labels = [str(i) for i in reversed(range(10))]
    kernel, bias = model.get_layer("head").get_weights()
    model.get_layer("head").set_weights([kernel[:, ::-1], bias[::-1]])  # the same classes in another order
    zoo.save(model, tmp_path / "other.keras")
    places = [str(tmp_path / name) for name in ("m.keras", "dist/model.onnx", "dist/model.tflite", "other.keras")]
    given = (places[0], str(tmp_path / "dist"), places[3])
    status, _, said = run(*given, "--data", "digits", "--out", str(tmp_path / "report"))
    assert status == 0, said
    facts = json.loads((tmp_path / "report" / "comparison.json").read_text())
    assert [found["name"] for found in facts["candidates"]] == places
    for found in facts["candidates"]:
        expected = evaluation.evaluate(inference.open_classifier(found["name"]), data.load("digits", "test")).top1
        assert (found["top1"], found["count"]) == (expected.value, expected.count)
        assert found["agreement"] > 0.99 and found["milliseconds"] > 0 < found["memory"] and found["bytes"] > 10**4
    assert facts["reason"].startswith(f"Take {facts['take']}: ") and (tmp_path / "report" / "comparison.png").exists()
