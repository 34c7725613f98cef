"""Which image files a list of paths, folders and patterns means."""

import glob
import os
from collections.abc import Iterable
from pathlib import Path

from keras_vit.data.datasets.image_files import SUFFIXES, walk_files
from keras_vit.errors import ImageError
from keras_vit.images.pillow import ADDRESS


def list_images(places: Iterable[str]) -> list[str]:
    """The paths of image files: those given, those in the folders given and their subfolders, those of patterns.

    A path that is neither a folder nor a pattern of existing files is kept as it is, so that reading it says what is
    wrong with it. What systems hide (.thumbnails, __MACOSX) is left out of folders.

    Args:
        places: such as "cat.jpg", "photos", "photos/*.png" or "photos/**/*.jpg".

    Raises:
        ImageError: for a folder or a pattern without images.

    >>> list_images(["cat.jpg", "https://example.com/dog.jpg"])
    ['cat.jpg', 'https://example.com/dog.jpg']
    """
    found = []
    for place in map(str, places):
        if os.path.isdir(place):
            found += require_some(sorted(entry.path for entry in walk_files(place) if is_image(entry.path)), place)
        elif glob.has_magic(place) and not os.path.lexists(place) and not ADDRESS.match(place):
            matches = sorted(path for path in glob.iglob(place, recursive=True) if is_image(path))
            found += require_some(matches, place)
        else:
            found.append(place)
    return found


def is_image(path):
    return Path(path).suffix.lower() in SUFFIXES and os.path.isfile(path)


def require_some(paths, place):
    if not paths:
        raise ImageError(f"There are no images at {place}. Expected files that end in {', '.join(SUFFIXES)}.")
    return paths
