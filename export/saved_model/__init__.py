"""SavedModels: the model's forward pass as TensorFlow functions, loadable without this package.

A model on JAX is written by another process, with Keras on TensorFlow. This file is also its script.
"""

import tempfile
from pathlib import Path

from keras_vit.errors import ExportError, require_backend
from keras_vit.export.formats import Order
from keras_vit.export.preparation import pack_inputs
from keras_vit.export.processes import last_line, run_script
from keras_vit.extras import require

ANSWERED = ("preprocessing", "labels", "probabilities")  # what an answer to images needs of a description


def takes_images(model, about):
    """Whether the model takes images, has a preprocessing for them, and gives one row of outputs per image."""
    single = len(model.inputs) == len(model.outputs) == 1
    return single and about.get("preprocessing") is not None and len(model.outputs[0].shape) == 2


def make_serve(model, further_outputs):
    """The model at inference as a function of its inputs, one argument each; a dictionary with further outputs."""

    def serve(*inputs):
        packed = pack_inputs(model, inputs)
        if not further_outputs:
            return model(packed, training=False)
        (name,) = further_outputs
        return dict(zip(("output_0", name), getattr(model, f"with_{name}")(packed), strict=True))

    return serve


def explain_log(log):
    return (
        f"TensorFlow's process could not write the SavedModel: {last_line(log).rstrip('.')}. A model with "
        "layers of your own is written only under KERAS_BACKEND=tensorflow: load it there and export it."
    )


def write_elsewhere(order, path):
    """Does what `write` does, by a process with TensorFlow."""
    require("tensorflow", "Writing a SavedModel")
    with tempfile.TemporaryDirectory() as folder:
        about = {name: order.description[name] for name in ANSWERED if name in order.description}
        job = {"model": f"{folder}/model.keras", "path": str(path), "about": about}
        job |= {"shapes": order.shapes, "endpoints": order.endpoints}
        order.model.save(job["model"])
        run_script(__file__, job, explain_log)
    return {}


def write(order: Order, path: Path, further_outputs: tuple[str, ...] = ()) -> dict[str, str]:
    """Writes the folder `path`; only other formats use `further_outputs`, see `formats`.

    Signatures: "serving_default", also named "serve", takes float inputs. A model of images that knows its
    preprocessing also has "serve_uint8", images (n, h, w, c) of any one size, and with one or three channels
    "serve_bytes", encoded JPEG or PNG files (n,). Both return "probabilities", "logits" unless the model's output is
    probabilities, and, if the model knows its labels, "label"; or "vectors" of a model without a head. Each of
    `endpoints` names a method of the model that takes its inputs, such as "features".

    If Keras runs on JAX, a process with TensorFlow writes the folder.
    """
    require_backend("Writing a SavedModel", "tensorflow", "jax", error=ExportError)
    import keras

    if keras.backend.backend() == "jax":
        return write_elsewhere(order, path)
    import tensorflow as tf

    model = order.model
    archive = keras.export.ExportArchive()
    # Layers at any depth; Keras has no public way to list them. Those with lookup tables and the like must be tracked
    # to be saved. Those with variables are not tracked: their variables would be stored twice.
    for layer in model._flatten_layers():
        if layer.built and not layer.variables:
            archive.track(layer)
    inputs = zip(model.inputs, order.shapes, strict=True)
    signature = [tf.TensorSpec(shape, x.dtype, name=x.name) for x, shape in inputs]
    archive.add_endpoint("serve", make_serve(model, further_outputs), signature)
    if takes_images(model, order.description):
        from keras_vit.export.saved_model import serving

        for name, (function, argument) in serving.image_endpoints(model, order.description).items():
            archive.add_endpoint(name, function, [argument])
    for name in order.endpoints:
        archive.add_endpoint(name, getattr(model, name), signature)
    try:
        archive.write_out(str(path), verbose=False)
    except tf.errors.OpError as error:
        reason = last_line(error.message).rpartition("; ")[2]
        raise ExportError(f"TensorFlow could not write the SavedModel: {reason}") from error
    return {}


def main(job):
    import keras

    model = keras.saving.load_model(job["model"], compile=False)
    shapes = [tuple(shape) for shape in job["shapes"]]
    order = Order(model=model, shapes=shapes, description=job["about"], endpoints=tuple(job["endpoints"]))
    write(order, Path(job["path"]))
