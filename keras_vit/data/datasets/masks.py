"""A folder with images/ and masks/ of the same names: PNG of class numbers, 255 for pixels that do not count."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np

from keras_vit.data.datasets.folder import require_folder, split_folders
from keras_vit.data.datasets.image_files import SUFFIXES, choose_examples, is_folder, visible_entries
from keras_vit.data.datasets.schemes import parse_splits
from keras_vit.errors import DataError, ImageError, quote_some
from keras_vit.images import pillow

IGNORED = 255  # the class number of pixels that do not count
NAMES = "classes.txt"
EXPECTED = "Expected a folder with images/ and masks/ of the same names, such as images/1.jpg and masks/1.png"
GREY = (
    "A mask is a grey PNG of 8 bits whose pixels are class numbers. Make one of a palette's numbers by "
    'Image.fromarray(np.asarray(Image.open(path), "uint8")).save(path), of colours by your table of their classes'
)
KINDS = {  # by Pillow's mode; of grey ones by the mode in the file, whose numbers Pillow spreads over 8 bits
    "P": "a PNG with a palette",
    "RGB": "a PNG of colours",
    "RGBA": "a PNG of colours",
    "1": "a grey PNG of 1 bit",
    "L;2": "a grey PNG of 2 bits, which is read as multiples of 85",
    "L;4": "a grey PNG of 4 bits, which is read as multiples of 17",
}


def require_parts(folder):
    """(images, masks): the two folders of a split."""
    for name in ("images", "masks"):
        if not (folder / name).is_dir():
            raise DataError(f"{folder} has no folder {name}. {EXPECTED}.")
    return folder / "images", folder / "masks"


def find_places(folder):
    """{split: its folder} of those that there are."""
    return split_folders(require_folder(folder, EXPECTED))


def list_splits(folder):
    """The splits that have folders; refuses a folder without images/ and masks/. No file is read."""
    places = find_places(folder)
    require_parts(places["train"])
    return places


def list_stems(folder, suffixes):
    """{name without its ending: path} of the files with these endings."""
    found = {}
    for entry in visible_entries(folder):
        path = Path(entry.path)
        if is_folder(entry) or path.suffix.lower() not in suffixes:
            continue
        if path.stem in found:
            raise DataError(f"{folder} has {found[path.stem].name} and {path.name} for one mask. Rename one of them.")
        found[path.stem] = path
    return found


def list_pairs(folder):
    """{image: its mask} of a split's folder."""
    images, masks = (
        list_stems(part, suffixes) for part, suffixes in zip(require_parts(folder), (SUFFIXES, (".png",)), strict=True)
    )
    alone = [path.name for stem, path in images.items() if stem not in masks]
    if alone:
        raise DataError(
            f"{folder / 'masks'} has no PNG for {quote_some(alone)}. Add a mask of the same name to each image, 255 "
            "where nothing is known, or remove the image."
        )
    return {path: masks[stem] for stem, path in images.items()}


@cache
def read_mask(path, changed):
    """(mode, (height, width), class numbers) of a mask; `changed`, its time, makes another version another file."""
    from PIL import Image

    try:
        with pillow.blame_image(), Image.open(path, formats=("PNG",)) as image:
            mode = image.tile[0][3] if image.mode == "L" else image.mode
            numbers = np.unique(np.asarray(image)) if mode == "L" else np.empty(0, int)
            return mode, image.size[::-1], frozenset(numbers.tolist())
    except ImageError as error:
        raise DataError(f"{path} cannot be read as a mask: {error} Save it as PNG.") from error


def check_pair(pair):
    """The class numbers of the mask of (image, mask), which must be of the image's size."""
    image, mask = pair
    mode, size, numbers = read_mask(mask, mask.stat().st_mtime_ns)
    if mode != "L":
        raise DataError(f"{mask} is {KINDS.get(mode, f'of mode {mode}')}. {GREY}.")
    try:
        with pillow.open_image(pillow.read_bytes(image)) as opened:
            height, width = opened.size if pillow.read_orientation(opened) > 4 else opened.size[::-1]
    except ImageError:
        return numbers  # training names the image and skips it
    if size != (height, width):
        raise DataError(
            f"{mask} has {size[1]} x {size[0]} pixels; {image}, upright, has {width} x {height}. Resize the mask "
            "by nearest neighbour."
        )
    return numbers


def name_classes(root, numbers):
    """The classes: those that classes.txt names, or as many as the largest number says of {mask: class numbers}."""
    largest, mask = max((max(found - {IGNORED}, default=0), mask) for mask, found in numbers.items())
    if not (root / NAMES).is_file():
        if not largest:
            raise DataError(f"The masks of {root} have one class. Expected two or more, or their names in {NAMES}.")
        return tuple(f"class {number}" for number in range(largest + 1))
    try:
        text = (root / NAMES).read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{root / NAMES} is not text in UTF-8. Save it as UTF-8.") from error
    names = tuple(filter(None, map(str.strip, text.splitlines())))
    if not 2 <= len(names) == len(set(names)) <= IGNORED:
        raise DataError(
            f"{root / NAMES} must name 2 to {IGNORED} classes in as many lines, each once. Received: {len(names)}."
        )
    if largest >= len(names):
        raise DataError(
            f"{mask} has pixels of class {largest}, but {NAMES} names the classes 0 to {len(names) - 1}. Add the name, "
            f"or set these pixels to {IGNORED}, which does not count."
        )
    return names


def open_split(folder, split):
    """(source, class names) of a split, as `schemes` asks. The splits are chosen as `folder.scan` chooses them."""
    from keras_vit.data.reading.sources import MaskedFiles

    names, places = parse_splits(split, "A folder of masks"), find_places(folder)
    stated = {name: {(image, 0, mask) for image, mask in list_pairs(place).items()} for name, place in places.items()}
    every = sorted((image, mask) for pairs in stated.values() for image, _, mask in pairs)
    if not every:
        raise DataError(f"{places['train'] / 'images'} has no images ({', '.join(SUFFIXES)}). {EXPECTED}.")
    chosen = choose_examples(folder, names, stated, stated.get, places["train"])
    with ThreadPoolExecutor() as pool:  # of all splits, so that the classes do not depend on the one asked for
        numbers = dict(zip([mask for _, mask in every], pool.map(check_pair, every), strict=True))
    classes = name_classes(Path(os.path.expanduser(folder)), numbers)
    images, _, masks = zip(*sorted(chosen), strict=True)
    if not any(numbers[mask] - {IGNORED} for mask in masks):
        raise DataError(f"No mask of {folder} ({split}) has a pixel that counts: all of them are {IGNORED}.")
    return MaskedFiles(images, masks), classes


def would_read(folder, path):
    """Whether images put into the folder `path`, which need not exist, would be among those of a dataset's folder."""
    parts = [part for place in find_places(folder).values() for part in require_parts(place)]
    return Path(path).resolve() in [part.resolve() for part in parts]
