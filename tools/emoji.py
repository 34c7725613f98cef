"""Makes the emoji dataset: a folder of drawings per class, from a vendor's npm package of iamcal/emoji-data.

    npm pack emoji-datasource-google@16.0.0 emoji-datasource-twitter@16.0.0
    python tools/emoji.py emoji-datasource-google-16.0.0.tgz emoji_google
    python tools/emoji.py emoji-datasource-twitter-16.0.0.tgz emoji_twitter

Google's drawings are Noto Emoji (Apache-2.0), Twitter's Twemoji (CC-BY-4.0). A class is one of Unicode's groups,
without "Component"; the drawings are of 64 x 64 pixels, laid on white.
"""

import argparse
import io
import json
import tarfile
from pathlib import Path

from PIL import Image

CLASSES_LEFT_OUT = ("Component",)


def lay_on_white(data):
    """The bytes of a transparent picture as an RGB image."""
    picture = Image.open(io.BytesIO(data)).convert("RGBA")
    white = Image.new("RGBA", picture.size, "white")
    white.alpha_composite(picture)
    return white.convert("RGB")


def read_drawings(package):
    """Yields (class, file name, image) of the drawings of an npm package, in the order of its list."""
    with tarfile.open(package) as archive:
        files = {member.name: member for member in archive.getmembers() if member.isfile()}
        read = lambda name: archive.extractfile(files[name]).read()  # noqa: E731
        vendor = json.loads(read("package/package.json"))["name"].rpartition("-")[2]
        for row in json.loads(read("package/emoji.json")):
            name = f"package/img/{vendor}/64/{row['image']}"
            if row[f"has_img_{vendor}"] and row["category"] not in CLASSES_LEFT_OUT and name in files:
                yield row["category"].replace(" & ", "_and_").replace(" ", "_"), row["image"], lay_on_white(read(name))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path, help="the .tgz of emoji-datasource-google or -twitter")
    parser.add_argument("out", type=Path, help="a new folder")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True)
    for group, name, image in read_drawings(arguments.package):
        (arguments.out / group).mkdir(exist_ok=True)
        image.save(arguments.out / group / name)


if __name__ == "__main__":
    main()
