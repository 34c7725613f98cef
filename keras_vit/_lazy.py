"""Rooms and names that are imported when they are first used (PEP 562)."""

import importlib
import sys


def attributes(package, names):
    """The module-level `__getattr__` and `__dir__` of `package`: `names` maps a public name to the module that has it.

    A name that maps to its own module is that module. `dir` shows these names and all that the package's `__all__` has.
    """

    def load(name):
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(names[name])
        return module if names[name].endswith(f".{name}") else getattr(module, name)

    return load, lambda: sorted({*names, *sys.modules[package].__all__})
