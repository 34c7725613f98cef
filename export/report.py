"""The report on an artefact: how close it is to its model, in numbers."""

import dataclasses
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keras_vit.export.formats import Format, Quantize, list_data, raise_reading_errors
from keras_vit.export.proof.parity import Difference, Kind


@dataclass(frozen=True)
class Report:
    """One artefact, compared with its model in the artefact's own runtime.

    Args:
        format: its name, see `formats`.
        path: path of the artefact.
        quantize: None, "float16", "dynamic" or "int8".
        bytes: size on disk, with external data and folders.
        weight_bytes: size of its weights, with the scales of those in int8.
        model_weight_bytes: size of the model's weights in float32.
        max_abs_diff: largest absolute difference of any output value.
        max_rel_diff: the same over the largest absolute value of that output, in [0, 1] for anything usable.
        cosine: smallest cosine between the model's and the artefact's outputs for one image, in [-1, 1]; if an image
            has one number as output, for all images together.
        top1_agreement: share of the images with the same best class in both, in [0, 1]; None without classes.
        top5_agreement: share of the five best classes that both have in common, in [0, 1]; None without classes.
        top1_regret: the model's score of its own best class minus its score of the artefact's best class, as a share of
            the range of the model's outputs, in [0, 1]; the largest of all images; None without classes.
        images: number of images compared.
        batches: the batch sizes at which they were compared.
        tolerance: the bound for max_rel_diff.
        finer: {layer: way} for layers, by their names in the file, that `quantize` alone would make too rough. The way
            is "dynamic", "int8-weights", "float16" or "float32"; see `proof.mixture`.
        latency_ms: milliseconds by batch size in the artefact's runtime; empty unless requested.
        model_latency_ms: the same for the float model.
        further_outputs: the endpoints that are outputs of the artefact, each with its largest absolute difference from
            the model's; not those of a SavedModel, which are signatures.
        gpu: for a TFLite file, what LiteRT's GPU delegate runs, see `tflite.reading.ask_gpu`; None if no GPU was found.
    """

    format: str
    path: str
    quantize: Quantize | None
    bytes: int
    weight_bytes: int
    model_weight_bytes: int
    max_abs_diff: float
    max_rel_diff: float
    cosine: float
    top1_agreement: float | None
    top5_agreement: float | None
    top1_regret: float | None
    images: int
    batches: tuple[int, ...]
    tolerance: float | None
    finer: dict[str, str] = dataclasses.field(default_factory=dict)
    latency_ms: dict[int, float] = dataclasses.field(default_factory=dict)
    model_latency_ms: dict[int, float] = dataclasses.field(default_factory=dict)
    further_outputs: dict[str, float] = dataclasses.field(default_factory=dict)
    gpu: dict[str, Any] | None = None

    def as_json(self) -> str:
        """The fields as a JSON object."""
        return json.dumps(dataclasses.asdict(self), indent=2)

    def __str__(self) -> str:
        agreement = "" if self.top1_agreement is None else f", top-1 agreement {self.top1_agreement:.1%}"
        kind = f" ({self.quantize})" if self.quantize else ""
        shrunk = f", weights {self.model_weight_bytes / self.weight_bytes:.1f} times smaller" if self.quantize else ""
        further = "".join(f", with {name}" for name in self.further_outputs)
        return (
            f"{self.path}: {self.format}{kind}{further}, {self.bytes / 1e6:.1f} MB{shrunk}, "
            f"max difference {self.max_abs_diff:.1e}{agreement} on {self.images} images{count_ways(self.finer)}"
            f"{describe_gpu(self.gpu)}"
        )


def count_ways(finer: dict[str, str]) -> str:
    """Counts the layers that are stored more finely than the others, as the end of a sentence.

    >>> count_ways({"a": "float16", "b": "int8-weights", "c": "float16"})
    '; finer: 2 in float16, 1 in int8-weights'
    """
    counts = [f"{n} in {way}" for way, n in Counter(finer.values()).most_common()]
    return f"; finer: {', '.join(counts)}" if counts else ""


def describe_gpu(gpu: dict[str, Any] | None) -> str:
    """What a GPU runs of a file, as the end of a sentence.

    >>> describe_gpu({"adapter": "A", "operations": 9, "taken": 7, "refused": ["CONV_3D: Operation is not supported."]})
    '; GPU (A): 7 of 9 operations, the others on the processor (CONV_3D: Operation is not supported.)'
    """
    if gpu is None:
        return ""
    if gpu["taken"] == gpu["operations"]:
        return f"; GPU ({gpu['adapter']}): all operations"
    counts = f"{gpu['taken']} of {gpu['operations']} operations"
    return f"; GPU ({gpu['adapter']}): {counts}, the others on the processor ({' '.join(gpu['refused'])})"


def size_of(path: Path) -> int:
    """Bytes of a file and its external data, or of all files in a folder."""
    files = [path, *list_data(path)] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


def make_report(form: Format, path: Path, kind: Kind, difference: Difference, **others: Any) -> Report:
    """Makes the report of an artefact; `others` are fields that follow neither from it nor from its difference."""
    reader = form.load_reader()
    with raise_reading_errors(path):  # a runtime and a schema may read a file differently
        weight_bytes = reader.weight_bytes(path)
    return Report(
        format=form.name,
        path=str(path),
        quantize=kind.name,
        bytes=size_of(path),
        weight_bytes=weight_bytes,
        **difference.numbers(),
        tolerance=kind.max_rel_diff,
        gpu=reader.ask_gpu(path) if hasattr(reader, "ask_gpu") else None,
        **others,
    )
