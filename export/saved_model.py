"""SavedModels: the model's forward pass as TensorFlow functions, loadable without this package."""

import numpy as np

SUFFIX = ""


def write(model, shapes, path, description=None):
    """Writes `model` with a free batch as the folder `path`; signature "serving_default", also named "serve"."""
    import keras
    import tensorflow as tf

    archive = keras.export.ExportArchive()
    archive.track(model)
    signature = [tf.TensorSpec(shape, x.dtype, name=x.name) for shape, x in zip(shapes, model.inputs, strict=True)]
    archive.add_endpoint("serve", forward(model), signature)
    archive.write_out(str(path), verbose=False)


def forward(model):
    """The model at inference as a function of its inputs, one argument each."""

    def serve(*inputs):
        arguments = inputs[0] if len(inputs) == 1 else list(inputs)
        return model(arguments, training=False)

    return serve


def load(path, names=None):
    """A function from a list of arrays to the list of outputs, run by TensorFlow."""
    import keras
    import tensorflow as tf

    loaded = tf.saved_model.load(str(path))

    def run(inputs):
        return [np.asarray(x) for x in keras.tree.flatten(loaded.serve(*inputs))]

    return run
