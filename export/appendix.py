"""What an export appends to a file whose own readers stop before it: a zip archive with the description."""

import json
import zipfile
from pathlib import Path
from typing import Any

from keras_vit.export.description import require_short
from keras_vit.text import printable


def append_description(path: Path, description: dict[str, Any]) -> None:
    """Appends a zip archive with the metadata and the labels, where readers of TFLite files look for them.

    labels.txt has one line for each class: line breaks in a label are escaped there, not in the metadata.
    """
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("metadata.json", json.dumps(description, indent=2, default=str))
        if description.get("labels"):
            archive.writestr("labels.txt", "".join(f"{printable(name)}\n" for name in description["labels"]))


def append_comment(path: Path, key: str, text: str) -> None:
    """Puts the entry into the comment of the zip archive, at the end of the file."""
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = f"{key} {text}".encode()


def read_description(path: Path) -> dict[str, Any] | None:
    """What `append_description` appended, or None."""
    if not zipfile.is_zipfile(path):
        return None
    with zipfile.ZipFile(path) as archive:
        entry = archive.getinfo("metadata.json")
        if entry.compress_type != zipfile.ZIP_STORED:  # zipfile would unpack more than the stated length
            raise ValueError("its metadata.json is compressed, as no export writes it")
        require_short(entry.file_size)
        return json.loads(archive.read(entry))
