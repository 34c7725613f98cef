"""Run as a program by tests/training/test_memory.py: the most bytes that a process has in memory, of one training step.

    python tests/support/training_memory.py MODEL PIXELS LAYERS BATCH [remat]

These are TensorFlow's own, the weights, their gradients, Adam's moments, and the activations.
"""

import dataclasses
import re
import sys
from pathlib import Path

import numpy as np

from keras_vit import models, training


def main(name, pixels, num_layers, batch, *how):
    size, batch = (int(pixels), int(pixels)), int(batch)
    config = dataclasses.replace(models.variant(name).config, image_size=size, num_layers=int(num_layers))
    model = models.build(config)
    model.remat = how == ("remat",)
    model.compile(training.Adam(1e-4), training.SoftmaxLoss())
    model.train_on_batch(np.zeros((batch, *size, 3), "float32"), np.zeros(batch, int))
    # ru_maxrss would begin with that of the parent.
    print(1024 * int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]))


if __name__ == "__main__":
    main(*sys.argv[1:])
