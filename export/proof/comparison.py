"""Compares an artefact with its model: outputs, times, and the first layer at which they differ."""

import dataclasses
import functools
import math
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np

from keras_vit.errors import ExportError, ParityError
from keras_vit.export.description import describe_outputs
from keras_vit.export.formats import Format, Order
from keras_vit.export.preparation import Source, pack_inputs
from keras_vit.export.processes import run_in_batches
from keras_vit.export.proof.mixture import Goal
from keras_vit.export.proof.parity import BATCHES, Difference, Kind, compare_outputs
from keras_vit.extras import require

PROBES = 8
QUANTIZED_PROBES = 64
RUNS = 5  # runs to time
MOST_BYTES = 1 << 28  # of a further output on all compared images; ViT-B/16 has 22 MB of attention weights per image


def fix_batch(shape, batch_size):
    """The shape of an input with its batch size fixed, unless that is None."""
    if batch_size is not None and (shape[0] not in (None, batch_size) or batch_size < 1):
        raise ExportError(
            "batch_size must be a positive integer, equal to the model's if that is fixed "
            f"({shape[0]}). Received: batch_size={batch_size}."
        )
    return (batch_size or shape[0], *shape[1:])


@dataclass(frozen=True)
class Trial:
    """A model in one format, and the inputs on which the artefact is compared with it.

    Args:
        source: the model, and the options of all its artefacts.
        form: the row of the format.
        kind: the row of the quantization.
        endpoints: methods of the model to write besides its forward pass; see `formats`.
        size: (height, width) of the inputs, if these are free; None for the model's own.
    """

    source: Source
    form: Format
    kind: Kind
    endpoints: tuple[str, ...]
    size: tuple[int, int] | None = None

    @property
    def model(self) -> keras.Model:
        return self.source.functional

    @functools.cached_property
    def shapes(self) -> list[tuple[int | None, ...]]:
        """The shapes of the artefact's inputs, None for a free length."""
        shapes = self.source.choose_shapes(self.form.free_size)
        return [fix_batch(shape, self.source.batch_size) for shape in shapes]

    @functools.cached_property
    def inputs(self) -> list[np.ndarray]:
        """An array (n, ...) per input of the model, in whole batches if the batch is fixed."""
        count = PROBES if self.kind.name is None else QUANTIZED_PROBES
        if self.kind.finer and self.source.images is None:
            require("sklearn", f"quantize={self.kind.name!r} without images=")  # its photographs
        size = self.source.batch_size or 1
        shapes = [(shape[0], *self.size, shape[3]) if self.size else shape for shape in self.shapes]
        return self.source.choose_inputs(shapes, max(count // size, 1) * size)

    def at_other_sizes(self) -> list["Trial"]:
        """Trials with images of twice the height, and of twice the width, if these are free and weights are exact."""
        if len(self.shapes) > 1 or len(self.shapes[0]) != 4 or None not in self.shapes[0][1:3] or self.kind.finer:
            return []
        height, width = self.inputs[0].shape[1:3]
        source = dataclasses.replace(self.source, images=None)
        return [dataclasses.replace(self, source=source, size=x) for x in ((2 * height, width), (height, 2 * width))]

    @functools.cached_property
    def further_outputs(self) -> list[dict]:
        """The "name", "shape" and "dtype" of the endpoints that are outputs of the artefact after the model's own."""
        names = () if self.form.endpoints else self.endpoints
        outputs = model_runner(self.model, names)([x[:1] for x in self.inputs])
        return describe_outputs(names, outputs[len(self.model.outputs) :])

    @property
    def compared(self) -> int:
        """The number of images to compare: all, or as many whole batches as fit MOST_BYTES."""
        largest = max((4 * math.prod(x["shape"][1:]) for x in self.further_outputs), default=1)
        whole = sum(self.batches)
        return min(len(self.inputs[0]), max(MOST_BYTES // largest // whole, 1) * whole)

    @property
    def batches(self) -> tuple[int, ...]:
        """The batch sizes in which the artefact runs."""
        batch_size = self.shapes[0][0]
        return BATCHES if batch_size is None else (batch_size,)

    def input_names(self) -> list[str]:
        return [x.name for x in self.model.inputs]

    @functools.cached_property
    def expected(self) -> list[np.ndarray]:
        """The model's outputs for all inputs, then its further outputs for the first `compared` images."""
        own = run_in_batches(model_runner(self.model), self.inputs, (8,))
        names = [x["name"] for x in self.further_outputs]
        if not names:
            return own
        inputs = [x[: self.compared] for x in self.inputs]
        return own + run_in_batches(model_runner(self.model, names), inputs, (8,))[len(own) :]

    def order(self, tell=None) -> Order:
        """The `Order` to write the artefact; `tell` takes lines of text."""
        goal = None
        if self.kind.finer:
            inputs = dict(zip(self.input_names(), self.inputs, strict=True))
            # On images that are not the user's, the best class means nothing.
            classes = self.source.images is not None and has_classes(self.model)
            goal = Goal(inputs, self.expected[: len(self.model.outputs)], self.batches, classes)
        return Order(
            model=self.model,
            shapes=self.shapes,
            description=self.source.describe(self.shapes, self.further_outputs),
            quantize=self.kind.name,
            goal=goal,
            endpoints=self.endpoints,
            tell=tell,
        )

    def load(self, path):
        return self.form.load_reader().load(path, self.input_names())


def has_classes(model):
    """Whether the first output is logits of classes; for a model of another package, its last layer decides.

    Features have no best class to compare.
    """
    output = model.outputs[0]
    if len(output.shape) != 2 or output.shape[1] == 1:
        return False
    classes = getattr(getattr(model, "config", None), "num_classes", None)
    last = (keras.layers.Dense, keras.layers.Activation, keras.layers.Softmax)
    return isinstance(model.layers[-1], last) if classes is None else classes > 0


def model_runner(model, methods=()):
    """A function from a list of arrays to the model's outputs at inference, followed by those of its methods."""

    def run(inputs):
        packed = pack_inputs(model, inputs)
        outputs = [model(packed, training=False), *(getattr(model, name)(packed) for name in methods)]
        return [keras.ops.convert_to_numpy(x) for x in keras.tree.flatten(outputs)]

    return run


def compiled_runner(model):
    """The same for the compiled model."""
    return lambda inputs: keras.tree.flatten(model.predict_on_batch(pack_inputs(model, inputs)))


def compare(trial: Trial, path: Path) -> Difference:
    """The difference between the model's outputs and those of its artefact at `path`."""
    names = [x["name"] for x in trial.further_outputs]
    inputs, expected = ([x[: trial.compared] for x in arrays] for arrays in (trial.inputs, trial.expected))
    return compare_outputs(expected, run_in_batches(trial.load(path), inputs, trial.batches), names)


def require_parity(trial: Trial, difference: Difference) -> None:
    """Raises ParityError unless the difference is within bounds; NaN never is. Equal outputs for all images, such as
    those of a new zero head, prove nothing, so the output of every layer is compared instead.
    """
    broken = trial.kind.broken_bounds(difference)
    if not broken and (difference.varies or trial.kind.calibrated):
        return
    layer = first_differing_layer(trial)
    if not broken and layer is None:
        return
    where = ""
    if layer is not None:
        where = " The first layer whose output differs is {!r} (relative difference {:.2e}).".format(*layer)
    raise ParityError(
        f"The {trial.form.title} artefact does not match the model: its outputs differ by up to "
        f"{difference.max_abs_diff:.2e}. "
        f"{'; '.join(broken) or 'The outputs are the same for every image, but those of its layers differ'}."
        f"{where} Nothing was written."
    )


def is_connected(model, outputs):
    """Whether tensors belong to this model's graph: its layers may also be called in another."""
    try:
        return bool(keras.Model(model.input, outputs))
    except ValueError:
        return False


def find_output(model, layer):
    """The layer's output in the model, if it is a single tensor from a single call; else None."""
    # Keras has no public way to count the calls of a layer.
    found = [node.outputs for node in layer._inbound_nodes if is_connected(model, node.outputs)]
    is_one = not isinstance(layer, keras.layers.InputLayer) and len(found) == 1 and len(found[0]) == 1
    return found[0][0] if is_one else None


def first_differing_layer(trial: Trial) -> tuple[str, float] | None:
    """(name, relative difference) of the first layer whose output in an artefact differs, or None."""
    found = {layer: find_output(trial.model, layer) for layer in trial.model.layers}
    layers = [layer for layer, output in found.items() if output is not None]
    every_output = keras.Model(trial.model.input, [found[layer] for layer in layers])
    order = dataclasses.replace(trial.order(), model=every_output, description={}, endpoints=())
    if order.goal is not None:  # every layer as rough as the kind allows
        order = dataclasses.replace(order, goal=dataclasses.replace(order.goal, outputs=[]))
    inputs = [x[:PROBES] for x in trial.inputs]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"layers{trial.form.suffix}"
        trial.form.load_writer().write(order, path)
        expected = run_in_batches(model_runner(every_output), inputs, (8,))
        received = run_in_batches(trial.load(path), inputs, trial.batches)
    for layer, a, b in zip(layers, expected, received, strict=True):
        difference = compare_outputs([a], [b])
        # Classes mean nothing inside the model.
        if trial.kind.broken_bounds(dataclasses.replace(difference, top1_regret=None)):
            return layer.name, difference.max_rel_diff
    return None


def measure_latencies(trial, path):
    """{"latency_ms": {batch size: ms}, "model_latency_ms": likewise} of the artefact and of the model, compiled.

    The batch sizes are 1 and 8, or the artefact's own if it is fixed.
    """
    runs = {"latency_ms": trial.load(path), "model_latency_ms": compiled_runner(trial.model)}
    sizes = (1, 8) if trial.batches == BATCHES else trial.batches
    return {
        name: {size: median_milliseconds(run, [x[:size] for x in trial.inputs]) for size in sizes}
        for name, run in runs.items()
    }


def median_milliseconds(run, inputs):
    run(inputs)
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        run(inputs)
        times.append(1e3 * (time.perf_counter() - start))
    return round(statistics.median(times), 2)
