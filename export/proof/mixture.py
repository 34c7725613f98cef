"""Which layers of an artefact bear int8, by measurement: those whose rounding costs the most are stored more finely.

A layer is an operator of the file with weights. The ways to store and compute it, from the roughest, are its ladder.
Imports no Keras: the quantizers of the formats call it in processes of their own.
"""

import collections
import json
import runpy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from keras_vit.export.proof.parity import cosine
from keras_vit.export.proof.runtimes import run_in_batches

WAYS = {
    "int8": "computes in int8, its ranges calibrated",
    "dynamic": "computes in int8, the range of each input measured as it comes",
    "int8-weights": "stores its weights in int8 and computes in float",
    "float16": "stores its weights in float16 and computes in float",
    "float32": "stays in float32",
}
# Sharper than 0.995 and 0.005, which other images should keep: their worst is worse (docs/exports_in_depth.md).
LEAST_COSINE = 0.9993
MOST_CHANGED = 0.002  # part of the images whose best class may change
# Times the errors: so few images as are compared then show how often a class changes. The part of the shipped models'
# test images whose best class leads by less than a margin is in proportion to the margin, from 0.1 to 20 % of them.
STRETCH = 64
MOST_GROUPS = 12  # of layers, which are measured one by one
MOST_HALVINGS = 12  # of those that cost the most
FEW = 16  # images for both

Ways = Mapping[str, str]


@dataclass(frozen=True)
class Loss:
    """What the outputs lose. `error`: its energy as a part of the outputs'; `enough`: whether it is small enough."""

    error: float
    cosine: float
    changed: float

    @property
    def enough(self) -> bool:
        return self.cosine >= LEAST_COSINE and self.changed <= MOST_CHANGED


@dataclass(frozen=True)
class Goal:
    """What an artefact is calibrated on and compared with.

    Args:
        inputs: by name, arrays (n, ...).
        outputs: the model's for them, without further ones that the artefact may have after them; none where every
            layer is to be as rough as can be.
        batches: the sizes in which the artefact runs.
        classes: whether the first output is the logits of classes, whose order counts.
    """

    inputs: dict[str, np.ndarray]
    outputs: list[np.ndarray]
    batches: tuple[int, ...]
    classes: bool

    def save(self, path):
        outputs = {str(i): array for i, array in enumerate(self.outputs)}
        named = [f"input {name}" for name in self.inputs]
        arrays = dict(zip(named, self.inputs.values(), strict=True))
        np.savez(path, batches=self.batches, classes=self.classes, **arrays, **outputs)

    @classmethod
    def read(cls, path):
        with np.load(path, allow_pickle=False) as stored:
            arrays = dict(stored)
        batches, classes = tuple(map(int, arrays.pop("batches"))), bool(arrays.pop("classes"))
        inputs = {name.removeprefix("input "): x for name, x in arrays.items() if name.startswith("input ")}
        outputs = [arrays[str(i)] for i in range(len(arrays) - len(inputs))]
        return cls(inputs, outputs, batches, classes)

    def split_inputs(self):
        """The inputs by name in batches of the smallest size in which the artefact runs, to calibrate on."""
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
    """Part of the images whose best class changes from logits `a` (n, classes) to `b`, estimated from few images.

    The error of every image is added to the logits of every image, STRETCH times as large: classes then change about
    STRETCH times as often.
    """
    best = a.argmax(axis=1)
    changed = [(a + error).argmax(axis=1) != best for error in STRETCH * (b - a)]
    return float(np.mean(changed)) / STRETCH


def order_steps(costs, sizes):
    """The numbers of the groups whose turn it is to go down a rung, those that spare the most for their size first.

    Args:
        costs: of each group a list: the error that it adds on each rung, from the roughest.
        sizes: of each group its number of weights.

    >>> order_steps([[0.9, 0.8, 0.0], [0.5, 0.0, 0.0]], [1, 1])
    [0, 0, 1, 1]
    """
    steps = []
    for group, (found, size) in enumerate(zip(costs, sizes, strict=True)):
        spared = -np.diff(found) / size
        # A step that saves little is ranked by the best saving it leads to.
        steps += [(spared[i:].max(), group) for i in range(len(spared))]
    return [group for _, group in sorted(steps, key=lambda step: -step[0])]


def halve_worst(costs, find_cost):
    """`costs`, {layers: cost on each rung}, with the groups that cost the most in halves, and in halves again.

    One layer often has all of its group's cost. The costs of two halves add up to the whole's, so one is measured. At
    most MOST_HALVINGS are made.
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


def choose_ways(
    ladders: Mapping[str, tuple[str, ...]],
    sizes: Mapping[str, int],
    measure: Callable[[Ways, int | None], Loss],
    tell: Callable[[str], object],
) -> Ways:
    """The way of every layer, as rough as the outputs bear.

    If the roughest rung is too rough for all layers together, the first that is not is sought. The layers, in at most
    MOST_GROUPS groups of neighbours, are measured alone on each rung above it, while the others are on it; the groups
    that cost the most are halved (`halve_worst`). Then they go down rung by rung, the steps that spare the most for
    their weights first, as few as suffice. The same images give the same choice.

    Args:
        ladders: of each layer by its name, from the roughest way.
        sizes: its number of weights.
        measure: the loss on some of the images, or with None on all.
        tell: takes a line on what is being done.

    >>> losses = {"int8": {"a": 0.5, "b": 1e-4}, "float32": {"a": 0.0, "b": 0.0}}
    >>> def measure(ways, count):
    ...     error = sum(losses[way][name] for name, way in ways.items())
    ...     return Loss(error, cosine=1 - error, changed=0.0)
    >>> ladder = ("int8", "float32")
    >>> choose_ways({"a": ladder, "b": ladder}, {"a": 9, "b": 9}, measure, print)
    int8 throughout costs too much (cosine 0.500): 2 layers are measured one by one
    {'a': 'float32', 'b': 'int8'}
    """
    rungs = [
        {name: ladder[min(i, len(ladder) - 1)] for name, ladder in ladders.items()}
        for i in range(max(map(len, ladders.values()), default=1))
    ]
    losses = []
    for fine in rungs:
        losses.append(measure(fine, None))
        if losses[-1].enough:
            break
    if len(losses) == 1 or not losses[-1].enough:
        return fine
    rungs = rungs[: len(losses)]
    differing = [name for name in ladders if rungs[0][name] != fine[name]]
    length = -(-len(differing) // MOST_GROUPS)
    groups = [tuple(differing[i : i + length]) for i in range(0, len(differing), length)]
    each = "one by one" if length == 1 else f"in {len(groups)} groups"
    tell(f"int8 throughout costs too much (cosine {losses[0].cosine:.3f}): {len(differing)} layers are measured {each}")
    left = measure(fine, FEW).error

    def find_cost(group):
        trials = [{**fine, **{name: rung[name] for name in group}} for rung in rungs[:-1]]
        return np.array([*(measure(trial, FEW).error - left for trial in trials), 0.0])

    costs = halve_worst({group: find_cost(group) for group in groups}, find_cost)
    groups = list(costs)
    steps = order_steps(costs.values(), [sum(sizes[name] for name in group) for group in groups])

    def mix(count):
        rung_of = collections.Counter(steps[:count])
        return {**rungs[0], **{name: rungs[rung_of[i]][name] for i, group in enumerate(groups) for name in group}}

    few, many = 0, len(steps)  # too few, and enough
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if measure(mix(middle), None).enough else (middle, many)
    return mix(many)


def shorten_name(name, names):
    """A name without the others that a converter joined to it by semicolons, if no other of `names` begins so."""
    first = name.split(";")[0]
    return first if sum(other.split(";")[0] == first for other in names) == 1 else name


def quantize_to_goal(job, quantizer):
    """Writes job["output"] with the ways that its goal needs, and prints which layers are not on their first rung.

    Lines of text on what is being done come first, as JSON strings; then {layer: way} as a JSON object.

    Args:
        job: paths under "goal", "output" and "reading" (a format's reading.py).
        quantizer: has `ladders` and `sizes` of the layers, see `choose_ways`, and `write`, which takes {layer: way} and
            the path of a file that is not there.
    """
    goal, output, ladders = Goal.read(job["goal"]), Path(job["output"]), quantizer.ladders
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

    ways = {name: ladder[0] for name, ladder in ladders.items()}
    if goal.outputs:
        ways = choose_ways(ladders, quantizer.sizes, measure, lambda line: print(json.dumps(line), flush=True))
    put(ways)
    finer = {name: ways[name] for name, ladder in ladders.items() if ways[name] != ladder[0]}
    print(json.dumps({shorten_name(name, ladders): way for name, way in finer.items()}), flush=True)
