"""Makes the emoji dataset: a folder with three vendors' drawings, those of one to test on.

    npm pack emoji-datasource-google@16.0.0 emoji-datasource-twitter@16.0.0
    npm pack @lobehub/fluent-emoji-3d@1.1.0 @lobehub/fluent-emoji-flat@1.1.0
    npm pack @iconify-json/noto@1.2.9 @iconify-json/noto-v1@1.2.5
    pip install resvg-py==0.5.0
    python tools/emoji.py PACKAGES EMOJI

PACKAGES is the folder of the six .tgz files. EMOJI then has

    train/         Noto Emoji, Google's (Apache-2.0), of today and of before 2017
    validation/    Fluent Emoji, Microsoft's (MIT), of two styles
    test/          Twemoji, Twitter's (CC-BY-4.0)

so that settings are chosen on a vendor that is neither trained nor tested on, and `--split train+validation` then
trains on both. Drawings are of 64 x 64 pixels, on white. Classes are made of the subgroups of iamcal/emoji-data,
which are Unicode's.
"""

import argparse
import io
import json
import tarfile
from pathlib import Path

from PIL import Image

from keras_vit.images.pillow import to_array

SIDE = 64  # pixels
LIST, NAMES = "emoji-datasource-google", "iconify-json-noto"
PACKAGES = {
    LIST: "train",
    "iconify-json-noto-v1": "train",
    "emoji-datasource-twitter": "test",
    "lobehub-fluent-emoji-3d": "validation",
    "lobehub-fluent-emoji-flat": "validation",
}
# Class: how the names of its subgroups begin. The first that fits counts.
CLASSES = {
    "animal": ("animal", "cat-face", "monkey-face"),
    "plant": ("plant",),
    "drink": ("drink",),
    "food": ("food",),
    "face": ("face",),
    "heart": ("heart",),
    "hand": ("hand", "body-parts"),
    "person": ("person", "family"),
    "clothing": ("clothing",),
    "vehicle": ("transport-ground", "transport-water", "transport-air"),
    "building": ("place-building", "place-religious"),
    "clock": ("time",),
    "sky": ("sky",),
    "flag": ("country-flag", "subdivision-flag", "flag"),
    "music": ("music",),
    "sport": ("sport", "game", "award-medal"),
    "symbol": (
        *("alphanum", "arrow", "av-symbol", "currency", "gender", "geometric", "keycap", "math", "other-symbol"),
        *("punctuation", "religion", "transport-sign", "warning", "zodiac", "emotion"),
    ),
    "object": ("",),
}
LEFT_OUT = "Component"  # skin tones alone
BORROWED = "flag"  # class: Fluent Emoji has no flags of countries, and its packages have Noto's


def choose_class(row):
    return next(name for name, starts in CLASSES.items() if row["subcategory"].startswith(starts))


def name_drawing(code):
    """The code points of a drawing, as all packages write them but for variation selectors: "1f1eb-1f1f7"."""
    return "-".join(point for point in code.lower().split("-") if point != "fe0f")


def read_package(path):
    """{file's path: its bytes} of an npm package."""
    with tarfile.open(path) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}


def list_classes(files):
    """{drawing: class} by iamcal's list."""
    rows = json.loads(files["package/emoji.json"])
    return {name_drawing(row["unified"]): choose_class(row) for row in rows if row["category"] != LEFT_OUT}


def draw_icons(icons, names):
    """{code points: SVG} of a package of Iconify's that lists its icons by name."""
    svg = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">{{}}</svg>'.format(**icons)
    bodies = {code: icons["icons"][name]["body"] for code, name in names.items() if name in icons["icons"]}
    return {code: svg.format(body).encode() for code, body in bodies.items()}


def find_drawings(files, names):
    """{drawing: bytes of a picture} of a package, without the sheets and larger sizes of iamcal's."""
    if "package/icons.json" in files:
        found = draw_icons(json.loads(files["package/icons.json"]), names)
    else:
        folders = (f"/{SIDE}/", "package/assets/")
        found = {Path(path).stem: data for path, data in files.items() if any(folder in path for folder in folders)}
    return {name_drawing(code): data for code, data in found.items()}


def render(data):
    """A drawing as an RGB image of SIDE x SIDE pixels, on white."""
    if data.startswith(b"<svg"):
        import resvg_py

        data = bytes(resvg_py.svg_to_bytes(svg_string=data.decode("utf-8"), width=SIDE, height=SIDE))
    image = Image.fromarray(to_array(Image.open(io.BytesIO(data)), 3))
    return image if image.size == (SIDE, SIDE) else image.resize((SIDE, SIDE), Image.Resampling.LANCZOS)


def make_dataset(packages, out):
    """Writes the folder; returns {split: number of drawings}."""

    def read(package):
        (archive,) = packages.glob(f"{package}-[0-9]*.tgz")
        return read_package(archive)

    classes, count = list_classes(read(LIST)), dict.fromkeys(PACKAGES.values(), 0)
    names = json.loads(read(NAMES)["package/chars.json"])
    for package, split in PACKAGES.items():
        for drawing, data in find_drawings(read(package), names).items():
            if drawing in classes and (split, classes[drawing]) != ("validation", BORROWED):
                folder = out / split / classes[drawing]
                folder.mkdir(parents=True, exist_ok=True)
                render(data).save(folder / f"{drawing}_{package.rpartition('-')[2]}.png")
                count[split] += 1
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", type=Path, help="the folder of the six .tgz files")
    parser.add_argument("out", type=Path, help="a new folder")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True)
    print(make_dataset(arguments.packages, arguments.out))


if __name__ == "__main__":
    main()
