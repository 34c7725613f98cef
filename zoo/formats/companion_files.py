"""Reads the JSON files that timm and transformers put beside their weights, and the names of the classes in them."""

import contextlib

from keras_vit.files import read_json

COMPANIONS = ("config.json", "preprocessor_config.json")
MOST_BYTES = 2**22  # of a file; the names of 21,843 classes take 0.7 million


def read_companions(path):
    """The objects in config.json and preprocessor_config.json beside `path`: two dictionaries, {} for no such file."""
    return tuple(read_object(path.with_name(name)) for name in COMPANIONS)


def read_object(path):
    """The object in a JSON file; {} for anything else. The cache of `huggingface_hub` consists of links."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        found = read_json(path, MOST_BYTES, follow_links=True)
        return found if isinstance(found, dict) else {}
    return {}


def stated_labels(stated, num_classes):
    """The names of the classes, or None where the files name others, or just number them."""
    names = stated.get("label_names")
    by_number = stated.get("id2label")
    if isinstance(by_number, dict):
        names = [by_number.get(str(i)) for i in range(len(by_number))]
    if not isinstance(names, list) or len(names) != num_classes or not all(isinstance(name, str) for name in names):
        return None
    return None if all(name == f"LABEL_{i}" for i, name in enumerate(names)) else tuple(names)
