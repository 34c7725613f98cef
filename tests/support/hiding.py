"""Packages that are installed, hidden from this process as if they were not."""

import importlib.machinery


def hide(names):
    """Must be called before these modules are imported; children of the process see them."""
    finder = importlib.machinery.PathFinder
    find = finder.find_spec
    finder.find_spec = classmethod(lambda _, name, *more: None if name.split(".")[0] in names else find(name, *more))
