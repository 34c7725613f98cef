"""Milliseconds of an artefact beside those of its model."""

import statistics
import time

import keras
import numpy as np

from keras_vit.export.preparation import pack_inputs
from keras_vit.export.proof.parity import BATCHES

RUNS = 5


def measure_latencies(trial, path):
    """{"latency_ms": {batch size: ms}, "model_latency_ms": likewise}: the artefact, the model as a TensorFlow function.

    At batch 1 and 8, or at the artefact's own where it is fixed.
    """
    import tensorflow as tf

    source = trial.source
    original = tf.function(lambda *x: source(pack_inputs(source, x), training=False), reduce_retracing=True)
    runs = {
        "latency_ms": trial.load(path),
        "model_latency_ms": lambda inputs: [np.asarray(y) for y in keras.tree.flatten(original(*inputs))],
    }
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
