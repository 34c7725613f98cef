"""What stands at the beginning, each in a new process: loading and building models, importing, whole commands."""

import importlib
import subprocess
import sys
import tempfile
from functools import partial

from benchmarks.subjects import Case, Contestant, Settings
from keras_vit.evaluation.device.measuring import peak_memory, seconds_per_call
from keras_vit.evaluation.device.process import NotMeasured, run_apart

seconds = partial(seconds_per_call, least=0)  # of one call

SMALL, EPOCHS = 64, 10  # images of a folder, passes over them
OPTIONS = ("--image-size", "--batch-size", "--epochs")


def start_keras():
    """What the framework takes by itself is not measured, nor importing what loads, which timm has imported by then."""
    from keras_vit import models

    importlib.import_module("keras_vit.zoo.loading")
    models.build(models.variant("ViT-Test/4").config)


def start_timm():
    import timm

    timm.create_model("vit_tiny_patch16_224")


def save_weights(name, *paths):
    from keras_vit import models, zoo

    model = models.build(models.variant(name).config)
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        zoo.save(model, path)


def build_ours(name):
    from keras_vit import models

    return models.build(models.variant(name).config)


def build_peer(peer, name):
    from benchmarks.keras_models import KERAS_PEERS
    from keras_vit import models

    return KERAS_PEERS[peer][1](models.variant(name).config)


def load_ours(path):
    from keras_vit import zoo

    zoo.load(path)


def read_twice_and_build(name, path):
    """What loading cannot do without: the arrays once from the file and once to the model, which is built."""
    import numpy as np

    for _ in range(2):
        with np.load(path) as archive:
            for member in archive.files:
                archive[member]
    build_ours(name)


def load_timm(name, path=""):
    import timm

    from benchmarks.torch_models import NAMES

    timm.create_model(NAMES[name], checkpoint_path=str(path))


def measure_start(kind, start, do, *arguments):
    """The seconds ("time") or bytes ("memory") of a step, after what its framework takes by itself."""
    start()
    before = peak_memory()
    duration = seconds(partial(do, *arguments))
    return duration if kind == "time" else float(max(peak_memory() - before, 1))  # a tiny model adds nothing


def enter_apart(settings, kind, start, do, *arguments, over=()):
    """What makes the contestant of a step that is measured in a new process each time."""
    measure = partial(run_apart, measure_start, kind, start, do, *arguments, limit=settings.limit)
    return lambda: Contestant(measure, over=over, unit="s" if kind == "time" else "bytes")


def enter_loading(case: Case, settings: Settings):
    """Loading a file: .npz beside reading and building, .safetensors beside timm's loading of the same file."""
    from benchmarks.torch_models import NAMES

    files = [settings.files / f"{case.model.replace('/', '_')}.{ending}" for ending in ("npz", "safetensors")]
    if not all(path.exists() for path in files):
        run_apart(save_weights, case.model, *files, limit=settings.limit)
    archive, tensors = files
    least = {"time": "read twice, build", "memory": "file"}[case.kind]
    enter = partial(enter_apart, settings, case.kind)
    makers = {
        "keras_vit, .npz": enter(start_keras, load_ours, archive, over=(least,)),
        "keras_vit, .safetensors": enter(start_keras, load_ours, tensors, over=("timm, .safetensors",)),
    }
    if case.kind == "memory":
        makers[least] = lambda: Contestant(lambda: float(archive.stat().st_size), unit="bytes")
    else:
        makers[least] = enter(start_keras, read_twice_and_build, case.model, archive)
    if "timm" in settings.peers and case.model in NAMES:
        makers["timm, .safetensors"] = enter(start_timm, load_timm, case.model, tensors)
    return makers


def enter_building(case: Case, settings: Settings):
    from benchmarks.keras_models import KERAS_PEERS
    from benchmarks.torch_models import NAMES
    from keras_vit.models import variant

    config = variant(case.model).config
    enter = partial(enter_apart, settings, "time")
    makers = {"keras_vit": enter(start_keras, build_ours, case.model, over=("timm", *KERAS_PEERS))}
    for peer, (has, _) in KERAS_PEERS.items():
        if peer in settings.peers and has(config):
            makers[peer] = enter(start_keras, build_peer, peer, case.model)
    if "timm" in settings.peers and case.model in NAMES:
        makers["timm"] = enter(start_timm, load_timm, case.model)
    return makers


def time_statement(statement, limit):
    """Seconds of an import statement in a new process."""
    code = f"import time; start = time.perf_counter(); {statement}; print(time.perf_counter() - start)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=limit)
    if done.returncode:
        raise NotMeasured((done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1])
    return float(done.stdout.split()[-1])


def enter_importing(case: Case, settings: Settings):
    """Import statements. The package imports Keras when its first class is asked for."""
    statements = ["import keras", "import keras_vit", "from keras_vit.models import ResNet"]
    statements += ["import keras_hub"] if "keras-hub" in settings.peers else []
    statements += ["import timm"] if "timm" in settings.peers else []

    def enter(statement):
        rivals = ("import keras", "import keras_hub", "import timm") if "keras_vit" in statement else ()
        return Contestant(partial(time_statement, statement, settings.limit), over=rivals)

    return {statement: partial(enter, statement) for statement in statements}


def enter_listing(case: Case, settings: Settings):
    """The command, beside a Python that does nothing and one that imports Keras."""
    commands = {
        "keras-vit list": ["-m", "keras_vit", "list"],
        "python": ["-c", ""],
        "import keras": ["-c", "import keras"],
    }

    def enter(name):
        line = [sys.executable, *commands[name]]
        run = partial(subprocess.run, line, capture_output=True, check=True, timeout=settings.limit)
        return Contestant(partial(seconds, run), over=("python", "import keras") if name == "keras-vit list" else ())

    return {name: partial(enter, name) for name in commands}


BARE_FIT = """
import sys
import keras
from keras_vit import zoo

folder, model, size, batch, epochs = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
train, held_out = keras.utils.image_dataset_from_directory(
    folder, validation_split=0.1, subset="both", seed=0, image_size=(size, size), batch_size=batch
)
train, held_out = (part.map(lambda x, y: (x / 127.5 - 1, y)) for part in (train, held_out))
model = zoo.load(model, weights=None, num_classes=2, image_size=size)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("adam", loss, metrics=["accuracy"])
model.fit(train, validation_data=held_out, epochs=epochs, verbose=0)
"""


def enter_command(case: Case, settings: Settings):
    """The command on a small folder, beside `model.fit` in as many epochs, which keeps nothing."""
    from benchmarks.pipelines import write_photos

    folder = write_photos(settings.files / "photos-small", "jpg", SMALL).resolve()
    numbers = [str(number) for number in (case.image_size, case.batch, EPOCHS)]
    options = [f"{name}={number}" for name, number in zip(OPTIONS, numbers, strict=True)]

    def train():
        with tempfile.TemporaryDirectory() as out:
            asked = ["--data", f"folder:{folder}", "--model", case.model, "--out", f"{out}/run", *options]
            call("-m", "keras_vit", "pretrain", *asked)

    def call(*arguments):
        subprocess.run([sys.executable, *arguments], capture_output=True, check=True, timeout=settings.limit)

    bare = partial(call, "-c", BARE_FIT, folder, case.model, *numbers)
    return {
        "keras-vit pretrain": lambda: Contestant(partial(seconds, train), over=("model.fit",)),
        "model.fit": lambda: Contestant(partial(seconds, bare)),
    }
