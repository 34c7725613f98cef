"""Makes `.keras` files loadable by `import keras_vit` alone, which itself imports no Keras.

Keras finds our classes only once their modules have run. So they are imported when Keras is: at once where it is
loaded already, else right after its own import.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys


def register():
    if "keras" in sys.modules:
        import_classes()
    else:
        sys.meta_path.insert(0, KerasFinder())


def import_classes():
    for module in ("keras_vit.layers", "keras_vit.models.vit", "keras_vit.models.resnet"):
        importlib.import_module(module)


class KerasFinder(importlib.abc.MetaPathFinder):
    """Finds nothing itself: wraps the loader of `keras`, once."""

    def find_spec(self, name, path, target=None):
        if name != "keras":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None:
            spec.loader = ThenRegister(spec.loader)
        return spec


class ThenRegister(importlib.abc.Loader):
    """Runs a module as its own loader does, then registers our classes."""

    def __init__(self, loader):
        self.loader = loader

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        import_classes()
