"""Measures which layers of an artefact tolerate int8: those whose rounding costs the most are stored more finely.

A layer is an operator of the file with weights. The ways to store and compute it, from the roughest, are its ladder; a
rung is a state in which all layers are equally high on theirs. `run_quantizer` starts a format's quantizer in a
separate process, which calls `quantize_to_goal`. Neither may import Keras.
"""

import collections
import json
import runpy
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.export.processes import run_in_batches, run_script
from keras_vit.export.proof.parity import cosine

WAYS = {
    "int8": "computes in int8, its ranges calibrated",
    "dynamic": "computes in int8, the range of each input measured as it comes",
    "int8-weights": "stores its weights in int8 and computes in float",
    "float16": "stores its weights in float16 and computes in float",
    "float32": "stays in float32",
}
# Factor of the errors, so that a few images show how often a class changes. In the shipped models' test images, the
# share whose best class leads by less than a margin is proportional to the margin, from 0.1 to 20 % of them.
STRETCH = 64
MOST_GROUPS = 12  # of layers; they are measured one by one
MOST_HALVINGS = 12  # of the costliest groups
FEW = 16  # images for both

Ways = Mapping[str, str]  # {layer: way}
Measure = Callable[[Ways, int | None], "Loss"]  # on some of the images, or with None on all


@dataclass(frozen=True)
class Loss:
    """The loss of the outputs. `error`: energy of the difference as a share of the outputs'; `cosine`: the smallest of
    all images; `changed`: share of the images whose best class changes."""

    error: float
    cosine: float
    changed: float

    def within(self, bound: "Loss") -> bool:
        return self.cosine >= bound.cosine and self.changed <= bound.changed


# Stricter than the aim, 0.995 and 0.005, since other images have a worse worst case (docs/exports_in_depth.md).
BOUND = Loss(error=np.inf, cosine=0.9993, changed=0.002)
# Fifty convolutions in a row round each other's outputs: a few images lose much, the accuracy little.
BOUND_OF_CONVOLUTIONS = Loss(error=np.inf, cosine=0.98, changed=0.005)


@dataclass(frozen=True)
class Goal:
    """The inputs to calibrate an artefact on, and the outputs to compare it with.

    Args:
        inputs: {name: array (n, ...)}.
        outputs: the model's outputs for them, without the artefact's further outputs; none if every layer shall be as
            rough as possible.
        batches: the batch sizes of the artefact.
        classes: whether the first output is logits of classes, so that their order matters.
    """

    inputs: dict[str, np.ndarray]
    outputs: list[np.ndarray]
    batches: tuple[int, ...]
    classes: bool

    def save(self, path):
        arrays: dict[str, Any] = {f"input {name}": x for name, x in self.inputs.items()}
        arrays |= {str(i): x for i, x in enumerate(self.outputs)}
        np.savez(path, batches=self.batches, classes=self.classes, **arrays)

    @classmethod
    def read(cls, path):
        with np.load(path, allow_pickle=False) as stored:
            arrays = dict(stored)
        batches, classes = tuple(map(int, arrays.pop("batches"))), bool(arrays.pop("classes"))
        inputs = {name.removeprefix("input "): x for name, x in arrays.items() if name.startswith("input ")}
        outputs = [arrays[str(i)] for i in range(len(arrays) - len(inputs))]
        return cls(inputs, outputs, batches, classes)

    def split_inputs(self):
        """The inputs by name, in batches of the artefact's smallest size, for calibration."""
        size = min(self.batches)
        starts = range(0, len(next(iter(self.inputs.values()))), size)
        return [{name: x[i : i + size] for name, x in self.inputs.items()} for i in starts]

    def measure(self, run, count=None):
        """The `Loss` of a function from a list of arrays to another, on whole batches of the first `count` images."""
        if count is not None:
            whole = sum(self.batches)
            count = max(count // whole, 1) * whole
        expected = [x[:count] for x in self.outputs]
        inputs = [x[:count] for x in self.inputs.values()]
        received = run_in_batches(lambda batch: run(batch)[: len(expected)], inputs, self.batches)
        pairs = [(a.astype("float64"), b.astype("float64")) for a, b in zip(expected, received, strict=True)]
        energy = sum(np.square(a).sum() for a, _ in pairs)
        return Loss(
            error=float(sum(np.square(b - a).sum() for a, b in pairs) / (energy or 1.0)),
            cosine=min(cosine(a, b) for a, b in pairs),
            changed=estimate_changed(*pairs[0]) if self.classes else 0.0,
        )


def estimate_changed(a, b):
    """Estimates, from few images, the share whose best class changes from logits `a` (n, classes) to `b`.

    The errors of each image, times STRETCH, are added to the logits of every image; classes then change about STRETCH
    times as often.
    """
    best = a.argmax(axis=1)
    changed = [(a + error).argmax(axis=1) != best for error in STRETCH * (b - a)]
    return float(np.mean(changed)) / STRETCH


def list_rungs(ladders):
    """{layer: way} on every rung, from the roughest; a short ladder's last way is repeated."""
    count = max(map(len, ladders.values()), default=1)
    return [{name: ladder[min(i, len(ladder) - 1)] for name, ladder in ladders.items()} for i in range(count)]


def halve_worst(costs, find_cost):
    """Halves the costliest groups in `costs`, {layers: cost on each rung}, repeatedly, at most MOST_HALVINGS times.

    One layer often has all of its group's cost. The costs of two halves add up to the whole's, so one is measured.
    """
    costs = dict(costs)
    for _ in range(MOST_HALVINGS):
        worst = max((group for group in costs if len(group) > 1), key=lambda group: costs[group].max(), default=None)
        if worst is None:
            break
        first, rest = worst[: len(worst) // 2], worst[len(worst) // 2 :]
        whole, costs[first] = costs.pop(worst), find_cost(first)
        costs[rest] = whole - costs[first]
    return costs


def group_layers(rungs):
    """Groups the layers that differ between the first and last rung into at most MOST_GROUPS groups of neighbours."""
    differing = [name for name, way in rungs[-1].items() if rungs[0][name] != way]
    length = -(-len(differing) // MOST_GROUPS)
    return [tuple(differing[i : i + length]) for i in range(0, len(differing), length)]


def measure_costs(rungs, groups, measure):
    """{group: the error that it adds on each rung while all others are on the last rung}; see also `halve_worst`."""
    fine = rungs[-1]
    left = measure(fine, FEW).error

    def find_cost(group):
        trials = [{**fine, **{name: rung[name] for name in group}} for rung in rungs[:-1]]
        return np.array([*(measure(trial, FEW).error - left for trial in trials), 0.0])

    return halve_worst({group: find_cost(group) for group in groups}, find_cost)


def order_steps(costs, sizes):
    """The numbers of the groups in the order of their steps down a rung, the largest gain for their size first.

    Args:
        costs: for each group the list of errors that it adds on each rung, from the roughest.
        sizes: for each group its number of weights.

    >>> order_steps([[0.9, 0.8, 0.0], [0.5, 0.0, 0.0]], [1, 1])
    [0, 0, 1, 1]
    """
    steps = []
    for group, (found, size) in enumerate(zip(costs, sizes, strict=True)):
        spared = -np.diff(found) / size
        # A step that saves little is ranked by the best saving it leads to.
        steps += [(spared[i:].max(), group) for i in range(len(spared))]
    return [group for _, group in sorted(steps, key=lambda step: -step[0])]


def take_steps(rungs, groups, steps):
    """The ways of all layers after the groups have gone down these steps."""
    rung_of = collections.Counter(steps)
    return {**rungs[0], **{name: rungs[rung_of[i]][name] for i, group in enumerate(groups) for name in group}}


def choose_ways(
    ladders: Mapping[str, tuple[str, ...]],
    sizes: Mapping[str, int],
    measure: Measure,
    tell: Callable[[str], object],
    bound: Loss = BOUND,
) -> Ways:
    """Chooses the way of every layer, as rough as the outputs allow. If the roughest rung is too rough, this finds the
    first rung that is not, and measures the cost of each layer above it. Then as few layers as possible go down rung by
    rung, beginning with the steps that gain the most for their weights. The same images give the same choice.

    Args:
        ladders: {layer: its ways}, from the roughest.
        sizes: {layer: its number of weights}.
        tell: takes a line on each step.
        bound: the loss that the outputs may have.

    >>> losses = {"int8": {"a": 0.5, "b": 1e-4}, "float32": {"a": 0.0, "b": 0.0}}
    >>> def measure(ways, count):
    ...     error = sum(losses[way][name] for name, way in ways.items())
    ...     return Loss(error, cosine=1 - error, changed=0.0)
    >>> ladder = ("int8", "float32")
    >>> choose_ways({"a": ladder, "b": ladder}, {"a": 9, "b": 9}, measure, print)
    int8 throughout costs too much (cosine 0.4999, 0.00% of the best classes change): 2 layers are measured
    {'a': 'float32', 'b': 'int8'}
    """
    rungs = list_rungs(ladders)
    losses = []
    for rung in rungs:
        losses.append(measure(rung, None))
        if losses[-1].within(bound):
            break
    if len(losses) == 1 or not losses[-1].within(bound):
        return rung
    rungs = rungs[: len(losses)]
    groups = group_layers(rungs)
    count = sum(map(len, groups))
    lost = f"cosine {losses[0].cosine:.4f}, {losses[0].changed:.2%} of the best classes change"
    tell(f"int8 throughout costs too much ({lost}): {count} layers are measured")
    costs = measure_costs(rungs, groups, measure)
    steps = order_steps(costs.values(), [sum(sizes[name] for name in group) for group in costs])
    few, many = 0, len(steps)  # too few, and enough
    while many - few > 1:
        middle = (few + many) // 2
        enough = measure(take_steps(rungs, costs, steps[:middle]), None).within(bound)
        few, many = (few, middle) if enough else (middle, many)
    return take_steps(rungs, costs, steps[:many])


def run_quantizer(script, job, order, explain=None):
    """Runs a format's script, beside its reading.py, that returns what `quantize_to_goal` does."""
    with tempfile.TemporaryDirectory() as folder:
        job = {**job, "goal": str(Path(folder) / "goal.npz"), "reading": str(Path(script).with_name("reading.py"))}
        order.goal.save(job["goal"])
        return run_script(script, job, explain, tell=order.tell)


def shorten_name(name, names):
    """The first of the names that a converter joined by semicolons, if no other of `names` begins like it."""
    first = name.split(";")[0]
    return first if sum(other.split(";")[0] == first for other in names) == 1 else name


def choose_in_turn(quantizer, measure: Measure, tell: Callable[[str], object]) -> Ways:
    """Chooses all ways: first the other layers', with `convolutions` in float; then these, by their own bound."""
    ladders, late = quantizer.ladders, quantizer.convolutions
    ways = dict(list_rungs(ladders)[-1])

    def measure_part(part, count):
        return measure({**ways, **part}, count)

    for bound, names in ((BOUND, ladders.keys() - late), (BOUND_OF_CONVOLUTIONS, late)):
        part = {name: ladder for name, ladder in ladders.items() if name in names}
        if part:
            ways.update(choose_ways(part, quantizer.sizes, measure_part, tell, bound))
    return ways


def quantize_to_goal(job, quantizer):
    """Writes job["output"] with the ways that the goal needs; returns {layer: way} of those not on their first rung.

    Lines of text on each step are printed as JSON strings. A format's quantizer has the `goal`; the `ladders` and
    `sizes` of `choose_ways`; `convolutions`, the set of those that begin in int8; and `write(ways, output)`, which
    writes a new file.
    """
    goal, output, ladders = quantizer.goal, Path(job["output"]), quantizer.ladders
    load = runpy.run_path(job["reading"])["load"]
    written = None

    def put(ways):
        nonlocal written
        if ways != written:
            output.unlink(missing_ok=True)  # not written over: a runtime may have the old file mapped
            quantizer.write(ways, str(output))
            written = ways

    def measure(ways, count):
        put(ways)
        return goal.measure(load(str(output), list(goal.inputs)), count)

    ways = list_rungs(ladders)[0]
    if goal.outputs:
        ways = choose_in_turn(quantizer, measure, lambda line: print(json.dumps(line), flush=True))
    put(ways)
    finer = {name: ways[name] for name, ladder in ladders.items() if ways[name] != ladder[0]}
    return {shorten_name(name, ladders): way for name, way in finer.items()}
