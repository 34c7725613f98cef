"""Compares an artefact with its model: outputs, times, and the first layer at which they differ."""

import contextlib
import dataclasses
import functools
import math
import statistics
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np

from keras_vit.errors import COUNT, ExportError, ParityError
from keras_vit.export.description import describe_outputs
from keras_vit.export.formats import Format, Order
from keras_vit.export.onnx.lowering import order_nodes
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
    if batch_size is None:
        return shape
    if batch_size not in COUNT or shape[0] not in (None, batch_size):
        raise ExportError(
            "batch_size must be a positive integer, equal to the model's if that is fixed "
            f"({shape[0]}). Received: batch_size={batch_size!r}."
        )
    return (int(batch_size), *shape[1:])


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
        shapes = [(shape[0], *self.size, shape[3]) if self.size else shape for shape in self.shapes]
        arrays = self.source.choose_inputs(shapes, self.whole(count))
        found, whole = len(arrays[0]), self.whole(len(arrays[0]))
        if whole > found:
            raise ExportError(f"images has {found} images, fewer than one batch of {whole}. Pass more of them.")
        return [x[:whole] for x in arrays]

    def whole(self, count):
        """`count` rounded down to whole batches of an artefact with a fixed batch, at least one."""
        size = self.shapes[0][0] or 1
        return max(count // size, 1) * size

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
        outputs = compute_outputs(self.model, [x[: reference_batch(self.model)] for x in self.inputs], names)
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
        own = compute_outputs(self.model, self.inputs)
        names = [x["name"] for x in self.further_outputs]
        if not names:
            return own
        inputs = [x[: self.compared] for x in self.inputs]
        return own + compute_outputs(self.model, inputs, names)[len(own) :]

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


@contextlib.contextmanager
def full_precision():
    """A context in which NVIDIA's cards multiply in float32, as an artefact does, not in the shorter TensorFloat-32."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        with jax.default_matmul_precision("highest"):
            yield
        return
    if backend == "tensorflow":
        from tensorflow.config import experimental

        read, write = experimental.tensor_float_32_execution_enabled, experimental.enable_tensor_float_32_execution
    else:
        from torch.backends import cudnn

        read, write = lambda: cudnn.allow_tf32, lambda value: setattr(cudnn, "allow_tf32", value)
    before = read()
    write(False)
    try:
        yield
    finally:
        write(before)


def reference_batch(model):
    """The number of images that the model computes at once: its own if that is fixed."""
    return model.inputs[0].shape[0] or 8


@full_precision()
def compute_outputs(model, inputs, methods=()):
    """The model's outputs at inference for a list of arrays, followed by those of its methods."""

    # Layers such as Resizing round whole numbers if called alone, but not in a graph, as in predict and in artefacts.
    in_graph = any(len(x.shape) == 4 and not keras.backend.is_float_dtype(x.dtype) for x in model.inputs)

    def run(batch):
        packed = pack_inputs(model, batch)
        own = model.predict_on_batch(packed) if in_graph else model(packed, training=False)
        outputs = [own, *(getattr(model, name)(packed) for name in methods)]
        return [keras.ops.convert_to_numpy(x) for x in keras.tree.flatten(outputs)]

    return run_in_batches(run, inputs, (reference_batch(model),))


def compiled_runner(model):
    """A function from a list of arrays to the compiled model's outputs."""
    return full_precision()(lambda inputs: keras.tree.flatten(model.predict_on_batch(pack_inputs(model, inputs))))


def compare(trial: Trial, path: Path) -> Difference:
    """The difference between the model's outputs and those of its artefact at `path`."""
    names = [x["name"] for x in trial.further_outputs]
    inputs, expected = ([x[: trial.compared] for x in arrays] for arrays in (trial.inputs, trial.expected))
    classify = trial.source.describe(trial.shapes)["probabilities"] is not None
    return compare_outputs(expected, run_in_batches(trial.load(path), inputs, trial.batches), names, classify)


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


def list_outputs(model):
    """[(layer, its output)] of the layers with one output that the model calls at one place, each after its needs."""
    nodes = order_nodes(model.outputs, map(id, model.inputs))
    calls = Counter(node.operation for node in nodes)
    return [
        (node.operation, node.outputs[0])
        for node in nodes
        if isinstance(node.operation, keras.Layer) and calls[node.operation] == len(node.outputs) == 1
    ]


def first_differing_layer(trial: Trial) -> tuple[str, float] | None:
    """(name, relative difference) of the first layer whose output in an artefact differs, or None."""
    layers = list_outputs(trial.model)
    every_output = keras.Model(trial.model.input, [output for _, output in layers])
    order = dataclasses.replace(trial.order(), model=every_output, description={}, endpoints=())
    if order.goal is not None:  # every layer as rough as the kind allows
        order = dataclasses.replace(order, goal=dataclasses.replace(order.goal, outputs=[]))
    inputs = [x[: trial.whole(PROBES)] for x in trial.inputs]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"layers{trial.form.suffix}"
        trial.form.load_writer().write(order, path)
        expected = compute_outputs(every_output, inputs)
        received = run_in_batches(trial.load(path), inputs, trial.batches)
    for (layer, _), a, b in zip(layers, expected, received, strict=True):
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
        name: {
            size: median_milliseconds(run, [np.resize(x, (size, *x.shape[1:])) for x in trial.inputs]) for size in sizes
        }
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
