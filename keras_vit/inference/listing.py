"""Lists the images in paths, folders, patterns and addresses, and reads those that are not files."""

import glob
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from keras_vit.data.datasets.image_files import SUFFIXES, walk_files
from keras_vit.errors import DownloadError, ImageError
from keras_vit.files import name_address
from keras_vit.images.pillow import MOST_BYTES
from keras_vit.images.pixels import read_any_image


def state_of(file: str | os.PathLike) -> list[int] | None:
    """Size and time of change of a file, to tell that it has changed; None if there is no file."""
    file = os.path.expanduser(file)
    if not os.path.isfile(file):
        return None
    state = os.stat(file)
    return [state.st_size, state.st_mtime_ns]


def is_image(path):
    return Path(path).suffix.lower() in SUFFIXES and os.path.isfile(path)


def means_several(place: object) -> bool:
    """Whether a place is a folder or a pattern, and so may have any number of images.

    >>> means_several("photos/*.jpg"), means_several("cat.jpg"), means_several(b"...")
    (True, False, False)
    """
    if not isinstance(place, str | os.PathLike):
        return False
    place = os.path.expanduser(place)
    is_pattern = glob.has_magic(place) and not os.path.lexists(place) and not name_address(place)
    return os.path.isdir(place) or is_pattern


def list_images(places: Iterable[str | os.PathLike]) -> list[str]:
    """The paths of image files: given files, those in given folders and their subfolders, and those of patterns.

    Any other place, such as an address or a missing file, is kept: reading it raises the error. In folders, hidden
    files and folders (.thumbnails, __MACOSX) are left out. A folder or a pattern without images is refused.

    >>> list_images(["cat.jpg", "https://example.com/dog.jpg"])
    ['cat.jpg', 'https://example.com/dog.jpg']
    """
    found = []
    for place in map(os.path.expanduser, map(str, places)):
        if os.path.isdir(place):
            paths = [entry.path for entry in walk_files(place)]
        elif means_several(place):
            paths = glob.glob(place, recursive=True)
        else:
            found.append(place)
            continue
        images = sorted(filter(is_image, paths))
        if not images:
            raise ImageError(f"There are no images at {place}. Expected files that end in {', '.join(SUFFIXES)}.")
        found += images
    return found


def fetch(address):
    """Fetches the bytes at an https address (http on this machine), until they exceed the size limit."""
    import requests
    from urllib3.exceptions import HTTPError

    from keras_vit.zoo.fetch.web import ask, describe_cause

    try:
        with ask(address) as reply:
            if reply.status_code != 200:
                status = f"{reply.status_code} {reply.reason}".rstrip()
                raise ImageError(f"{address} could not be fetched: the server answered {status}.")
            data = b""
            for chunk in reply.raw.stream(2**20):  # raises an error if the connection breaks off
                data += chunk
                if len(data) > MOST_BYTES:
                    break
            return data
    except DownloadError as error:
        raise ImageError(str(error)) from error
    except (requests.RequestException, HTTPError) as error:
        raise ImageError(f"{address} could not be fetched: {describe_cause(error)}.") from error


def read_from_anywhere(image: Any, num_channels: int = 3) -> np.ndarray:
    """Reads what `read_any_image` does, and the image at an https address, or on standard input, written "-"."""
    place = image if isinstance(image, str) else ""
    if place != "-" and not place.lower().startswith(("https://", "http://")):
        return read_any_image(image, num_channels)
    data = sys.stdin.buffer.read(MOST_BYTES + 1) if place == "-" else fetch(place)
    if len(data) > MOST_BYTES:
        raise ImageError(f"{place} has more bytes than the {MOST_BYTES:,} that are read of an image.")
    try:
        return read_any_image(data, num_channels)
    except ImageError as error:
        raise ImageError(f"{error} They came from {'standard input' if place == '-' else place}") from error
