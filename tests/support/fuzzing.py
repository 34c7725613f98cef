"""Throws mutated checkpoints at the loader: a program, since it limits its own memory and may be killed by a crash.

python fuzzing.py FOLDER SEED COUNT ENDING...: prints a JSON object with how often each outcome came.
"""

import collections
import json
import pathlib
import resource
import sys

import numpy as np
from attacks import acts
from mutations import MUTATIONS, mutated_json

from keras_vit import models, zoo
from keras_vit.errors import CheckpointError, PreprocessingError
from keras_vit.zoo.formats import open_checkpoint
from keras_vit.zoo.formats.checkpoint import Hints
from keras_vit.zoo.formats.variables import require_finite, to_precision

# What transformers writes beside its weights; every .safetensors file is read with a mutation of it.
COMPANION = {
    "num_attention_heads": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu", "id2label": {"0": "a", "1": "b"},
    "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "size": {"height": 8, "width": 8}, "resample": 2,
}  # fmt: skip

HUGE = 1e9  # of a weight: sums of products of such numbers may exceed float32


def tiny():
    return models.VisionTransformer(8, 4, 8, 1, 2, 8, num_classes=2, labels=("a", "b"))


def mutated(data, rng):
    """One of: a flipped bit, bytes overwritten, cut short, a piece doubled, a piece gone, a number made huge."""
    data = bytearray(data)
    # Headers and directories are at the ends, where damage is most telling.
    edge = int(rng.integers(min(2000, len(data))))
    place = int(rng.choice([rng.integers(len(data)), edge, len(data) - 1 - edge]))
    length = int(rng.integers(1, 64))
    kind = rng.integers(6)
    if kind == 0:
        data[place] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        data[place : place + length] = rng.bytes(length)
    elif kind == 2:
        del data[place:]
    elif kind == 3:
        data[place:place] = data[place : place + length]
    elif kind == 4:
        del data[place : place + length]
    else:
        data[place : place + 8] = bytes(rng.choice([b"\xff" * 8, b"\x00" * 8, b"99999999", b"\x7f" + b"\xff" * 7]))
    return bytes(data)


def images_for(model):
    """An image as the model's input, by its preprocessing where the file has left one to it."""
    try:
        return model.preprocessing(np.full((1, 9, 9, 3), 99, "uint8"))
    except PreprocessingError:
        return np.full((1, *model.input_shape[1:]), 0.1, "float32")


def load(path, whole):
    """Loads the file; `whole` makes a model of it too, which is slower, and answers."""
    if whole:
        model = zoo.load(path, num_heads=2)
        largest = max(np.abs(weight).max() for weight in model.get_weights())
        assert np.isfinite(model(images_for(model))).all() or largest > HUGE, largest
        return
    for name, tensor in open_checkpoint(path, Hints(num_heads=2)).tensors.items():
        require_finite(name, to_precision(tensor.read(), "float32"))


def outcome(path, whole):
    try:
        load(path, whole)
    except CheckpointError as error:
        return f"{error!r} acts on terminals" if acts(str(error)) else "refused"
    except BaseException as error:
        return f"{type(error).__name__} from {path.name}: {error}"
    return "loaded"


def address_space():
    """Bytes of address space that this process has now."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def main(folder, seed, count, endings):
    """`count` mutated files of every ending, with 4 GiB of address space above what the start took."""
    folder = pathlib.Path(folder)
    model = tiny()
    originals = {}
    for ending in endings:
        zoo.save(model, folder / f"good{ending}")
        originals[ending] = (folder / f"good{ending}").read_bytes()
    model(images_for(model))  # starts TensorFlow's threads: the more cores, the more address space they take
    rng = np.random.default_rng(seed)
    limit = address_space() + 2**32
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcomes = collections.Counter()
    for i in range(count * len(endings)):
        ending = endings[i % len(endings)]
        path = folder / f"bad{ending}"
        mutate = MUTATIONS[ending] if rng.integers(2) else mutated
        path.write_bytes(mutate(originals[ending], rng))
        if ending == ".safetensors":
            path.with_name("config.json").write_bytes(mutated_json(json.dumps(COMPANION), rng))
        outcomes[outcome(path, whole=i % 20 < len(endings))] += 1
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(json.dumps({"outcomes": outcomes, "grown_mib": grown}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
