"""Speed of keras_vit beside timm (PyTorch, eager), and what `import keras_vit` costs over `import keras`.

    pip install torch timm
    python benchmarks/speed.py
    python benchmarks/speed.py --only inference --models R50x1 --batch 1 --rounds 20

Both libraries run in this process with their default threads, and take turns: only the ratios mean anything. "paired"
is the median over the rounds of timm's time divided by keras_vit's, "best" the ratio of their fastest rounds, which
a busy machine disturbs less. Above 1, keras_vit is faster. Without timm there are times and no ratios.
"""

import argparse
import contextlib
import logging
import os
import statistics
import subprocess
import sys

from timing import median_ratio, take_turns

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

TIMM_NAMES = {
    "ViT-B/16": "vit_base_patch16_224",
    "ViT-S/16": "vit_small_patch16_224",
    "R50x1": "resnetv2_50x1_bit",
}
DEFAULTS = {"inference": ["ViT-B/16", "R50x1"], "training": ["ViT-S/16"]}
ROW = "{:<28}{:>12}{:>12}{:>10}{:>10}".format
IMPORT_ROW = "{:<40}{:>8}{:>10}".format


def import_timm():
    """torch and timm, or (None, None) after saying why."""
    try:
        import timm
        import torch
    except Exception as error:  # a torchvision of another build raises RuntimeError
        print(f"No comparison, since timm does not import ({error}). To get it: pip install torch timm\n")
        return None, None
    return torch, timm


def print_row(label, ours, theirs):
    """Prints a row of the table: median milliseconds, the median paired ratio and the ratio of the best rounds."""
    cells = [f"{1e3 * statistics.median(ours):.0f}"]
    if theirs:
        paired = median_ratio(theirs, ours)
        best = min(theirs) / min(ours)
        cells += [f"{1e3 * statistics.median(theirs):.0f}", f"{paired:.2f}", f"{best:.2f}"]
    print(ROW(label, *cells, *["-"] * (4 - len(cells))), flush=True)


def build_keras_inference(name, images, jit_compile):
    import tensorflow as tf

    import keras_vit

    model = keras_vit.zoo.load(name, weights=None)
    images = tf.constant(images)
    call = tf.function(lambda x: model(x, training=False), autograph=False, jit_compile=jit_compile)
    return lambda: call(images).numpy()


def build_timm_inference(torch, timm, name, images):
    model = timm.create_model(TIMM_NAMES[name]).eval()
    images = torch.tensor(images).permute(0, 3, 1, 2).contiguous()

    def call():
        with torch.inference_mode():
            return model(images).numpy()

    return call


def build_keras_training(name, images, labels, jit_compile):
    import keras

    import keras_vit

    model = keras_vit.zoo.load(name, weights=None)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(1e-3, momentum=0.9), loss, jit_compile=jit_compile or "auto")
    return lambda: float(model.train_on_batch(images, labels))


def build_timm_training(torch, timm, name, images, labels):
    model = timm.create_model(TIMM_NAMES[name]).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    images, labels = torch.tensor(images).permute(0, 3, 1, 2).contiguous(), torch.tensor(labels)

    def step():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


BUILDERS = {
    "inference": (build_keras_inference, build_timm_inference),
    "training": (build_keras_training, build_timm_training),
}


def compare(what, name, args, torch, timm):
    """Times one model at inference or in training, and prints its row."""
    import numpy as np

    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (args.batch, 224, 224, 3)).astype("float32")
    data = (images,) if what == "inference" else (images, rng.integers(0, 1000, args.batch))
    build_ours, build_theirs = BUILDERS[what]
    contestants = {"keras_vit": build_ours(name, *data, args.jit_compile)}
    if timm:
        contestants["timm"] = build_theirs(torch, timm, name, *data)
    seconds = take_turns(contestants, args.rounds, warm_up=2)
    print_row(f"{name} {what}", seconds["keras_vit"], seconds.get("timm"))


def time_import(statement):
    """Seconds of an import statement in a fresh process."""
    code = f"import time; start = time.perf_counter(); {statement}; print(time.perf_counter() - start)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def compare_imports(rounds):
    """Prints what an import costs in a fresh process, in seconds and as a multiple of `import keras`."""
    # The package imports Keras when its first class is asked for.
    statements = "import keras", "import keras_vit", "from keras_vit.models import ResNet"
    seconds = take_turns({s: s for s in statements}, rounds, measure=time_import)
    print("\n" + IMPORT_ROW("in a fresh process", "s", "/ keras"))
    for statement, ours in seconds.items():
        ratio = median_ratio(ours, seconds["import keras"])
        print(IMPORT_ROW(statement, f"{statistics.median(ours):.2f}", f"{ratio:.2f}"))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["inference", "training", "import"], help="leave the other two out")
    parser.add_argument("--models", nargs="+", choices=TIMM_NAMES, help="in place of the default ones")
    parser.add_argument("--batch", type=int, default=8, help="images in a call (default 8)")
    parser.add_argument("--rounds", type=int, default=8, help="timed calls of each (default 8)")
    parser.add_argument("--jit-compile", action="store_true", help="compile keras_vit's graph with XLA")
    return parser.parse_args()


def main():
    args = parse_arguments()
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    if args.only != "import":
        torch, timm = import_timm()
        print(ROW(f"batch {args.batch}", "keras_vit ms", "timm ms", "paired", "best"))
        for what in [args.only] if args.only else DEFAULTS:
            for name in args.models or DEFAULTS[what]:
                compare(what, name, args, torch, timm)
    if args.only in (None, "import"):
        compare_imports(args.rounds)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
