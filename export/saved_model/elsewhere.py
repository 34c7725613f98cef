"""Writes SavedModels of models on JAX: a process with Keras on TensorFlow loads the model and writes it.

This file is also the script of that process.
"""

import json
import os
import pickle
import sys
import tempfile
from pathlib import Path

from keras_vit.errors import ExportError
from keras_vit.export.subprocess_job import last_line, run_script
from keras_vit.extras import require

ATTRIBUTES = ("preprocessing", "labels")  # Keras does not save them with every model


def explain_log(log):
    return (
        f"TensorFlow's process could not write the SavedModel: {last_line(log).rstrip('.')}. Layers of your own need "
        "keras.saving.register_keras_serializable and a module that keras_vit imports; or load the model with "
        "KERAS_BACKEND=tensorflow and export it there."
    )


def write_elsewhere(order, path):
    """Does what the package's `write` does, by a process with TensorFlow.

    Raises:
        MissingPackageError: if TensorFlow is not installed.
        ExportError: as for `write`, and for layers that the process does not know.
    """
    require("tensorflow", "Writing a SavedModel")
    with tempfile.TemporaryDirectory() as folder:
        job = {"model": f"{folder}/model.keras", "attributes": f"{folder}/attributes", "path": str(path)}
        job |= {"shapes": order.shapes, "endpoints": order.endpoints, "described": bool(order.description)}
        order.model.save(job["model"])
        try:
            values = pickle.dumps({name: getattr(order.model, name, None) for name in ATTRIBUTES})
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ExportError(f"The model's preprocessing cannot be given to another process: {error}.") from error
        Path(job["attributes"]).write_bytes(values)
        run_script(__file__, job, explain_log)
    return {}


def main():
    job = json.load(sys.stdin)
    os.environ["KERAS_BACKEND"] = "tensorflow"  # before Keras is imported
    import keras

    from keras_vit.export.formats import Order
    from keras_vit.export.saved_model import write

    model = keras.saving.load_model(job["model"], compile=False)
    # The parent process wrote this file.
    for name, value in pickle.loads(Path(job["attributes"]).read_bytes()).items():
        if getattr(model, name, None) != value:
            setattr(model, name, value)
    shapes = [tuple(shape) for shape in job["shapes"]]
    write(
        Order(
            model=model,
            shapes=shapes,
            description={"described": True} if job["described"] else {},
            endpoints=tuple(job["endpoints"]),
        ),
        Path(job["path"]),
    )


if __name__ == "__main__":
    main()
