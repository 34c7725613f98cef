"""The layers of the paper: patches, positions, attention, encoder block; standardized convolution, norms, units."""

import importlib

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
importlib.import_module("keras")  # and then, while no layer is half imported, all our classes: see `_registration`
