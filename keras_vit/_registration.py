"""Makes `.keras` files loadable by `import keras_vit` alone, which itself imports no Keras.

Keras finds our classes only after their modules have run, and does not import them itself. So they are imported
together with Keras: at once if it is loaded already, otherwise right after its own import. If TensorFlow or one of our
modules is the first to import Keras, it is only half imported then, and modules that need it cannot be imported. So
this is tried again after TensorFlow's import, and `register` is called again in the midst of ours.
"""

import importlib
import importlib.abc
import importlib.util
import sys
from typing import Any

MODULES = (  # beside those of `MODELS`
    "keras_vit.masked_patches.model",
    "keras_vit.training.losses",
    "keras_vit.training.optimizers",
)
importing = False


def import_classes():
    from keras_vit.models.variants import MODELS

    global importing
    importing = True
    try:
        for module in (*(path.partition(":")[0] for path in MODELS.values()), *MODULES):
            importlib.import_module(module)
    except ImportError as error:
        if "partially initialized" not in str(error):
            raise
    finally:
        importing = False


class KerasFinder(importlib.abc.MetaPathFinder):
    """Finds no module itself: has the loaders of `keras` and `tensorflow` import our classes."""

    asking = False

    def find_spec(self, name, path, target=None):
        if name not in ("keras", "tensorflow") or self.asking:
            return None
        self.asking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.asking = False
        loader: Any = spec and spec.loader  # None for a folder without __init__.py, too
        if loader is not None:
            load = loader.exec_module

            def load_and_register(module):
                load(module)
                if "keras" in sys.modules and not importing:
                    import_classes()

            loader.exec_module = load_and_register
        return spec


def register():
    if "keras" not in sys.modules:
        sys.meta_path.insert(0, KerasFinder())
    elif not importing:
        import_classes()
