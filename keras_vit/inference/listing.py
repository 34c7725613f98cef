"""Which images a list of paths, folders, patterns and addresses means, and those that are no files."""

import glob
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from keras_vit.data.datasets.image_files import SUFFIXES, walk_files
from keras_vit.errors import DownloadError, ImageError
from keras_vit.files import is_offline, name_address
from keras_vit.images.pillow import MOST_BYTES
from keras_vit.images.pixels import read_any_image
from keras_vit.text import printable


def list_images(places: Iterable[str]) -> list[str]:
    """The paths of image files: those given, those in the folders given and their subfolders, those of patterns.

    Any other place, such as an address or a missing file, is kept as it is: reading it says what is wrong with it. What
    systems hide (.thumbnails, __MACOSX) is left out of folders.

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
        elif means_several(place):
            matches = sorted(path for path in glob.iglob(place, recursive=True) if is_image(path))
            found += require_some(matches, place)
        else:
            found.append(place)
    return found


def means_several(place: object) -> bool:
    """Whether a place is a folder or a pattern, which may mean any number of images.

    >>> means_several("photos/*.jpg"), means_several("cat.jpg"), means_several(b"...")
    (True, False, False)
    """
    if not isinstance(place, str | os.PathLike):
        return False
    place = os.fspath(place)
    is_pattern = glob.has_magic(place) and not os.path.lexists(place) and not name_address(place)
    return os.path.isdir(place) or is_pattern


def is_elsewhere(place: object) -> bool:
    """Whether a place is standard input, written "-", or an address."""
    return isinstance(place, str) and (place == "-" or place.lower().startswith(("https://", "http://")))


def read_elsewhere(place: str, num_channels: int = 3) -> np.ndarray:
    """The image at an https address, or on standard input, as `read_any_image` returns it.

    Raises:
        ImageError: when the address does not give a file, or the file is too large or no image.
    """
    data = sys.stdin.buffer.read(MOST_BYTES + 1) if place == "-" else fetch(place)
    if len(data) > MOST_BYTES:
        raise ImageError(f"{place} has more bytes than the {MOST_BYTES:,} that are read of an image.")
    try:
        return read_any_image(data, num_channels)
    except ImageError as error:
        raise ImageError(f"{error} They came from {'standard input' if place == '-' else place}") from error


def fetch(address):
    """The bytes at an https address (http on this machine), no more of them than tell that it is too large."""
    import requests
    from urllib3.exceptions import HTTPError

    from keras_vit.zoo.fetch.web import ask, describe_cause

    if is_offline():
        raise ImageError(f"{address} is not fetched, since KERAS_VIT_OFFLINE is set. Pass a file.")
    try:
        with ask(address) as reply:
            if reply.status_code != 200:
                status = printable(f"{reply.status_code} {reply.reason}").rstrip()
                raise ImageError(f"{address} could not be fetched: the server answered {status}.")
            data = b""
            for chunk in reply.raw.stream(2**20):  # an error where the connection breaks off
                data += chunk
                if len(data) > MOST_BYTES:
                    break
            return data
    except DownloadError as error:
        raise ImageError(str(error)) from error
    except (requests.RequestException, HTTPError) as error:
        raise ImageError(f"{address} could not be fetched: {describe_cause(error)}.") from error


def is_image(path):
    return Path(path).suffix.lower() in SUFFIXES and os.path.isfile(path)


def require_some(paths, place):
    if not paths:
        raise ImageError(f"There are no images at {place}. Expected files that end in {', '.join(SUFFIXES)}.")
    return paths
