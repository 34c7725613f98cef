"""The tables of what is measured, a row per subject, and beside whom, a row per peer. Imports no framework."""

import importlib.util
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Case:
    """What the contestants of a round do; empty or 0 where it does not concern the subject.

    Args:
        subject: a name of SUBJECTS.
        model: a variant, such as "ViT-B/16".
        kind: of the subject's `kinds`, such as the format of an export.
        batch: images of a call.
        image_size: pixels of a side.
        precision: Keras' dtype policy.
        backend: Keras'.
    """

    subject: str
    model: str = ""
    kind: str = ""
    batch: int = 0
    image_size: int = 0
    precision: str = "float32"
    backend: str = "tensorflow"

    def details(self) -> str:
        """All but the subject, in words."""
        batch, pixels = self.batch and f"batch {self.batch}", self.image_size and f"{self.image_size} px"
        precision = self.precision != "float32" and self.precision
        backend = self.backend != "tensorflow" and self.backend
        return ", ".join(filter(None, (self.model, self.kind, batch, pixels, precision, backend)))

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.subject, self.details())))


@dataclass(frozen=True)
class Settings:
    """How the cases of a run are measured.

    Args:
        rounds: at most, for a case.
        patience: seconds of a case after which no further round begins.
        limit: seconds of a contestant's turn, after which it is not measured.
        peers: names of PEERS that take part.
        remat: whether the models and timm's compute inner values again for the gradient.
        files: folder of what is made once for several cases.
    """

    rounds: int = 8
    patience: float = 120.0
    limit: float = 600.0
    peers: tuple[str, ...] = ()
    remat: bool = False
    files: Path = Path("benchmark_files")


@dataclass(frozen=True)
class Contestant:
    """What takes part in a case.

    Args:
        measure: does it, and returns the seconds or bytes that it took, once.
        work: what that does, in operations, images or simply times.
        over: names of the contestants by whose rate, work / measure, its own is divided.
        unit: "s" or "bytes".
        values: what was measured in each round.
    """

    measure: Callable[[], float] | None
    work: float = 1.0
    over: tuple[str, ...] = ()
    unit: str = "s"
    values: Sequence[float] = ()


@dataclass(frozen=True)
class Peer:
    """A library to compare with: the modules that it needs, and what pip installs for them."""

    modules: tuple[str, ...]
    install: str
    about: str


PEERS = {
    "timm": Peer(("torch", "timm"), "torch timm", "timm's models in PyTorch; its ONNX export in onnxruntime"),
    "timm-compiled": Peer(("torch", "timm"), "torch timm", "the same models after torch.compile"),
    "keras-hub": Peer(("keras_hub",), "keras-hub", "keras-hub's ViT, on the same backend"),
    "keras.applications": Peer(("keras",), "keras", "Keras' ResNet50V2 and ResNet101V2, on the same backend"),
    "openvino": Peer(("openvino",), "openvino", "OpenVINO on our ONNX files"),
}


def find_absent(name: str) -> tuple[str, ...]:
    """The modules that a peer needs and that are not installed."""
    return tuple(module for module in PEERS[name].modules if importlib.util.find_spec(module) is None)


@dataclass(frozen=True)
class Subject:
    """A row of SUBJECTS.

    Args:
        about: what is measured, in half a sentence.
        enter: "module:function", from a Case and Settings to {name: function that makes the Contestant}.
        rows: (model, batches, image sizes) that are measured unless others are asked for; 0 pixels for the model's own.
        kinds: of each row.
        peers: names of PEERS.
        mixed: whether each row is measured in mixed precision too, where the device has it.
        apart: whether each turn is a new process, in which nothing is warm.
        rounds: at most; 0 for as many as are asked for.
        options: what may be asked for in place of the rows: "models", "batch", "image_size", "precision".
    """

    about: str
    enter: str
    rows: Sequence[tuple[str, tuple[int, ...], tuple[int, ...]]] = (("", (0,), (0,)),)
    kinds: tuple[str, ...] = ("",)
    peers: tuple[str, ...] = ()
    mixed: bool = False
    apart: bool = False
    rounds: int = 0
    options: tuple[str, ...] = ()


def rows_at(batches, *models, sizes=(0,)):
    return tuple((model, batches, sizes) for model in models)


CEILINGS = ("matrix product", "convolution")  # what the framework itself reaches on the machine
MODELS = ("ViT-Ti/16", "ViT-S/16", "ViT-B/16", "ViT-B/32", "ViT-L/16", "R50+ViT-B/16", "R50x1", "R101x1", "R152x2")
ALL_OPTIONS = ("models", "batch", "image_size", "precision")
MODEL_PEERS = ("timm", "keras-hub", "keras.applications")

SUBJECTS: Mapping[str, Subject] = {
    "inference": Subject(
        "a batch of images to logits",
        "benchmarks.models:enter_inference",
        rows_at((1, 8, 32), *MODELS),
        peers=(*MODEL_PEERS, "timm-compiled"),
        options=ALL_OPTIONS,
    ),
    "training": Subject(
        "a step of SGD with momentum",
        "benchmarks.models:enter_training",
        rows_at((8,), "ViT-S/16", "R26+ViT-S/32", "R50x1", "R101x1"),
        peers=(*MODEL_PEERS, "timm-compiled"),
        mixed=True,
        options=ALL_OPTIONS,
    ),
    "exports": Subject(
        "exported files in their runtimes, in each precision",
        "benchmarks.exports:enter_exports",
        rows_at((1, 8), "ViT-B/16", "R50x1", "R50+ViT-B/16"),
        ("onnx", "tflite", "saved_model"),
        ("timm", "openvino"),
        options=("models", "batch"),
    ),
    "loading": Subject(
        "a model with the weights of a file, in a new process: its time, and its peak of memory",
        "benchmarks.starting:enter_loading",
        rows_at((0,), "R50x1", "ViT-B/16", "ViT-L/16"),
        ("time", "memory"),
        ("timm",),
        apart=True,
        rounds=5,
        options=("models",),
    ),
    "building": Subject(
        "a model with random weights, in a new process",
        "benchmarks.starting:enter_building",
        rows_at((0,), "R50x1", "ViT-B/16"),
        peers=MODEL_PEERS,
        apart=True,
        rounds=5,
        options=("models",),
    ),
    "import": Subject(
        "`import keras_vit` in a new process",
        "benchmarks.starting:enter_importing",
        peers=("timm", "keras-hub"),
        apart=True,
        rounds=5,
    ),
    "list": Subject(
        "`keras-vit list`, from the start of the process to its end",
        "benchmarks.starting:enter_listing",
        apart=True,
        rounds=5,
    ),
    "command": Subject(
        "`keras-vit pretrain` on a small folder, 10 epochs with all that a run keeps, from the start of the process",
        "benchmarks.starting:enter_command",
        rows_at((16,), "ViT-Test/4", sizes=(32,)),
        apart=True,
        rounds=3,
    ),
    "pipeline": Subject(
        "batches for training from a folder of images, beside bare decoding, cropping and resizing",
        "benchmarks.pipelines:enter_pipelines",
        (("", (64,), (224,)),),
        ("JPEG", "PNG", "augmented JPEG", "augmented PNG"),
        options=("batch", "image_size"),
    ),
    "memory": Subject(
        "the peak of a training step's memory, in a new process",
        "benchmarks.processes:enter_memory",
        (("ViT-S/16", (1,), (224, 512, 1024)), ("ViT-S/16", (8,), (224,)), *rows_at((8,), "ViT-L/16", "R50x1")),
        peers=("timm",),
        apart=True,
        rounds=2,
        options=ALL_OPTIONS,
    ),
    "engines": Subject(
        "Keras' engines beside each other: calls, steps, the first step with its compiling, a step's memory",
        "benchmarks.processes:enter_engines",
        rows_at((8,), "ViT-S/16", "R50x1"),
        ("inference", "training", "first step", "memory"),
        peers=("timm",),
        apart=True,
        rounds=3,
        options=ALL_OPTIONS,
    ),
    "growth": Subject(
        "a call's operations per second over image sizes, batches and models, beside the smallest",
        "benchmarks.models:enter_growth",
        rows_at((1,), "ViT-S/16", "R50x1"),
        ("image sizes", "batches", "models"),
        options=ALL_OPTIONS,
    ),
    "listing": Subject(
        "folders of 1,000 to a million images: all listed, a tenth chosen, a training's first batch after five passes",
        "benchmarks.folders:enter_listing",
        (("", (64,), (0,)),),
        ("list", "tenth", "resume"),
        rounds=3,
    ),
    "search": Subject(
        "the nearest of 1.2 million vectors to a batch of others: by the index, beside comparing all",
        "benchmarks.searches:enter_search",
        (("", (1, 100), (0,)),),
        rounds=5,
        options=("batch",),
    ),
}

# What --quick measures in two minutes, and beside whom; all of it is measured without --quick too.
QUICK_PEERS = ("timm",)
QUICK = (
    Case("inference", "ViT-S/16", batch=8, image_size=224),
    Case("training", "ViT-S/16", batch=8, image_size=224),
    Case("inference", "R50x1", batch=1, image_size=224),
    Case("training", "R50x1", batch=8, image_size=224),
    Case("pipeline", kind="JPEG", batch=64, image_size=224),
)


def own_image_size(model: str) -> int:
    """Pixels of a side of the images that a variant takes, 224 if it takes any."""
    from keras_vit.models import variant

    return (variant(model).config.image_size or (224, 224))[0]


def plan_cases(
    subjects: Sequence[str],
    models: Sequence[str] = (),
    batches: Sequence[int] = (),
    image_sizes: Sequence[int] = (),
    kinds: Sequence[str] = (),
    precisions: Sequence[str] = (),
    backend: str = "tensorflow",
    mixed: str = "",
) -> list[Case]:
    """The cases of some subjects; what is given replaces what the table says, in all that it concerns.

    Args:
        mixed: the dtype policy of mixed precision on this device, if it has it.

    Raises:
        UnknownNameError: for a model that is no variant.
    """
    cases = []
    for name in subjects:
        subject = SUBJECTS[name]
        rows = subject.rows
        if models and "models" in subject.options:
            known = {row[0] for row in rows}
            rows = [row for row in rows if row[0] in models]
            rows += [(model, *subject.rows[0][1:]) for model in models if model not in known]
        own_precisions = ["float32", mixed] if subject.mixed and mixed else ["float32"]
        for model, own_batches, own_sizes in rows:
            chosen = (
                [kind for kind in subject.kinds if kind in kinds or not kinds],
                (precisions if "precision" in subject.options else ()) or own_precisions,
                (image_sizes if "image_size" in subject.options else ()) or own_sizes,
                (batches if "batch" in subject.options else ()) or own_batches,
            )
            for kind, precision, size, batch in itertools.product(*chosen):
                size = size or (own_image_size(model) if model else 0)
                cases.append(Case(name, model, kind, batch, size, precision, backend))
    return list(dict.fromkeys(cases))
