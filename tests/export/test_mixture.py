"""The choice of layers: what it finds among layers of known cost, and how well few images foretell many."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from keras_vit.export.proof.mixture import BOUND, Goal, Loss, choose_in_turn, choose_ways, estimate_changed


def loss_of(error):
    return Loss(error, cosine=1 - error, changed=0.0)


def choose(costs, ladders, sizes=None):
    """(the choice, all that was measured) where the errors of layers of these sizes (1 each) add up."""
    seen = []

    def measure(ways, count):
        seen.append((dict(ways), count))
        return loss_of(sum(costs[name].get(way, 0.0) for name, way in ways.items()))

    return choose_ways(ladders, sizes or dict.fromkeys(ladders, 1), measure, lambda line: None), seen


def test_nothing_is_measured_where_the_roughest_is_enough():
    ladders = {"a": ("int8", "float32"), "b": ("int8-weights", "float32")}
    ways, seen = choose({"a": {}, "b": {}}, ladders)
    assert ways == {"a": "int8", "b": "int8-weights"} and len(seen) == 1


def test_the_fewest_layers_are_left():
    costs = {str(i): {"int8": cost} for i, cost in enumerate(np.random.default_rng(0).uniform(0, 5e-4, 10))}
    ways, _ = choose(costs, dict.fromkeys(costs, ("int8", "float32")))
    left = [name for name, way in ways.items() if way == "float32"]
    bound = 1 - BOUND.cosine
    assert sum(costs[name]["int8"] for name in costs if name not in left) <= bound
    for other in itertools.combinations(costs, len(left) - 1):  # no smaller choice would do
        assert sum(costs[name]["int8"] for name in costs if name not in other) > bound


def test_a_middle_rung_is_preferred_and_the_last_is_the_end():
    ladder = ("int8", "int8-weights", "float32")
    ways, _ = choose({"a": {"int8": 0.5}, "b": {}}, {"a": ladder, "b": ladder})
    assert ways == {"a": "int8-weights", "b": "int8"}
    hopeless = {"a": dict.fromkeys(ladder, 1.0)}
    assert choose(hopeless, {"a": ladder})[0] == {"a": "float32"}


def test_one_layer_that_needs_float_leaves_the_others_in_int8():
    ladder = ("int8", "int8-weights", "float32")
    costs = {"a": {"int8": 0.5, "int8-weights": 0.4}, "b": {"int8": 0.5}, **{name: {"int8": 1e-5} for name in "cdef"}}
    ways, _ = choose(costs, dict.fromkeys(costs, ladder))
    assert ways == {"a": "float32", "b": "int8-weights", **dict.fromkeys("cdef", "int8")}


def test_the_number_of_trials_is_bounded():
    costs = {str(i): {"int8": 1e-4 * (i % 7)} for i in range(500)}
    ways, seen = choose(costs, dict.fromkeys(costs, ("int8", "float32")))
    assert len(seen) <= 2 + 1 + 12 + 12 + 5 and loss_of(sum(costs[n].get(w, 0) for n, w in ways.items())).within(BOUND)
    assert choose(costs, dict.fromkeys(costs, ("int8", "float32")))[0] == ways


def test_of_a_group_only_the_layers_that_cost_are_stored_more_finely():
    costs = {str(i): {"int8": 1e-7} for i in range(300)} | {"77": {"int8": 5e-3}, "78": {"int8": 1e-3}}
    ways, seen = choose(costs, dict.fromkeys(costs, ("int8", "int8-weights", "float32")))
    assert [name for name, way in ways.items() if way != "int8"] == ["77", "78"]
    assert ways["77"] == ways["78"] == "int8-weights" and len(seen) <= 32


def test_of_two_that_spare_as_much_the_smaller_one_is_stored_more_finely():
    costs = {"large": {"int8": 5e-4}, "small": {"int8": 4.9e-4}}
    ladders = dict.fromkeys(costs, ("int8", "float32"))
    assert choose(costs, ladders, {"large": 2, "small": 1})[0] == {"large": "int8", "small": "float32"}
    assert choose(costs, ladders, {"large": 1, "small": 1})[0] == {"large": "float32", "small": "int8"}


def test_few_images_foretell_how_many_classes_change():
    random = np.random.default_rng(0)
    logits = random.normal(0, 3, (400_000, 10))
    received = logits + random.normal(0, 0.008, logits.shape)
    changed = (logits.argmax(1) != received.argmax(1)).mean()
    found = np.mean([estimate_changed(logits[i : i + 64], received[i : i + 64]) for i in range(0, 6400, 64)])
    assert found == pytest.approx(changed, rel=0.15) and changed > 0.0008


def test_a_goal_is_the_same_from_its_file(tmp_path):
    random = np.random.default_rng(0)
    inputs = {"images": random.normal(size=(5, 2)), "input 0": random.normal(size=(5, 3))}
    goal = Goal(inputs, [inputs["images"] * 2, inputs["input 0"]], (1, 3), True)
    goal.save(tmp_path / "goal.npz")
    read = Goal.read(tmp_path / "goal.npz")
    assert list(read.inputs) == list(inputs) and read.batches == (1, 3) and read.classes
    assert all(np.array_equal(a, b) for a, b in zip(read.outputs, goal.outputs, strict=True))
    assert read.measure(lambda arrays: [arrays[0] * 2, arrays[1]]) == Loss(0.0, pytest.approx(1), 0.0)


def test_convolutions_in_int8_have_a_bound_of_their_own():
    ladder = ("int8", "float32")
    costs = {"dense": 1e-3, "conv": 1e-2, "pixels": 1e-2}
    quantizer = SimpleNamespace(
        ladders=dict.fromkeys(costs, ladder), sizes=dict.fromkeys(costs, 1), convolutions={"conv"}
    )
    seen = []

    def measure(ways, count):
        seen.append(ways)
        return loss_of(sum(cost for name, cost in costs.items() if ways[name] == "int8"))

    ways = choose_in_turn(quantizer, measure, lambda line: None)
    assert ways == {"dense": "float32", "conv": "int8", "pixels": "float32"}
    assert all(ways.keys() == costs.keys() for ways in seen)
    costs["conv"] = 0.1
    assert choose_in_turn(quantizer, measure, lambda line: None)["conv"] == "float32"
