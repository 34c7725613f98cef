"""Makes a step on N replicas equal to a step on one device. All hooks into Keras' training are here.

On TensorFlow, Keras 3.15 (1) reads a real batch and averages it over the replicas to build a model's metrics, which
fails for integer leaves on a TPU and for any leaf on several workers; (2) weighs the replicas' mean losses alike,
though the last batch need not divide evenly; (3) averages the step's logs in a way that fails on several workers, and
on a TPU shows replica 0 alone; (4) clips each replica's gradient before they are summed; (5) calls tf.distribute's
merge_call under a condition to accumulate gradients and to overwrite weights by their average, which no graph allows;
(6) puts the replicas' steps under a condition in a loop for steps_per_execution, which fails on MirroredStrategy; (7)
scales the loss of float16 by whether replica 0's gradient is finite; (8) hands the whole batch of `train_on_batch` and
its like to every replica. For what Keras lacks on JAX see `jax_devices`.

docs/private_names.md lists the private names used here; its test fails when one is gone.
"""

import warnings
from typing import TYPE_CHECKING

import keras

from keras_vit import _registration
from keras_vit.distribution.optimizer import GlobalUpdate

if TYPE_CHECKING or keras.backend.backend() == "tensorflow":
    from keras_vit.distribution.tf_model import DistributedModel
elif keras.backend.backend() == "jax":
    from keras_vit.distribution.jax_model import DistributedModel
else:
    from keras import Model as DistributedModel  # other backends train on one device

__all__ = ["DistributedModel", "GlobalUpdate"]

_registration.register()
# Of every `fit` on a dataset, since shuffle=True is Keras' default.
warnings.filterwarnings("ignore", "`shuffle=True` was passed")
