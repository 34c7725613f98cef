"""What an export wrote, so that the next one replaces this and nothing else: file names with their SHA-256.

A folder has the list as a manifest. A single file ends in a seal: the digests of the files beside it that belong to it,
then the digest of all bytes before.
"""

import hashlib
import json
import os
import re
from pathlib import Path

from keras_vit.errors import ExportError
from keras_vit.export.formats import FORMATS, data_files
from keras_vit.export.web import LAYOUT_PATTERN as LAYOUT
from keras_vit.export.web import PATTERN as PAGE
from keras_vit.files import sha256_of_regular

MANIFEST = "keras-vit-export.json"
MAKER = "keras_vit.export"
FORMAT = 1  # of the manifest
SEAL = "keras_vit.export.seal"
DIGITS = 64  # of a SHA-256
LONGEST = 1_000_000  # bytes of a manifest
SEALED = re.compile(rb"%b.{0,9}?(\{.*?\}) ([0-9a-f]{%d})\Z" % (re.escape(SEAL.encode()), DIGITS), re.DOTALL)

# Every name that an export may write. A manifest that lists another is foreign, and cannot have that file deleted.
COMPANIONS = r"README\.md|predict\.py|examples\.npz|model\.json"
ALONE = (row.folder_pattern for row in FORMATS if row.is_folder)
NAMES = re.compile("|".join([COMPANIONS, PAGE, LAYOUT, *ALONE, *(row.bundled_pattern() for row in FORMATS)]), re.ASCII)


def files_in(folder):
    """The names of all files below `folder`, links among them, with "/" between the parts; sorted."""
    names = []
    for parent, folders, files in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        names += [Path(parent, name).relative_to(folder).as_posix() for name in files + links]
    return sorted(names)


def write_manifest(folder):
    """Lists every file in `folder` in its manifest.

    Raises:
        ExportError: for a file that no export writes, such as a SavedModel's assets.
    """
    files = {name: sha256_of_regular(folder / name) for name in files_in(folder)}
    for name in files:
        if not NAMES.fullmatch(name):
            raise ExportError(f"The model needs the file {name} beside it, which an export cannot contain.")
    text = json.dumps({"made_by": MAKER, "format": FORMAT, "files": files}, indent=2)
    (folder / MANIFEST).write_text(text + "\n")


def read_manifest(folder):
    """{name: SHA-256} of the files that the manifest of `folder` lists, without itself; None where it has none.

    Raises:
        ExportError: if it is damaged, of another kind or of a later version, or lists what no export writes.
    """
    path = Path(folder, MANIFEST)
    if not os.path.lexists(path):
        return None
    try:
        sha256_of_regular(path)
        if path.stat().st_size > LONGEST:
            raise ValueError("it is too long")
        return read_listed_files(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        raise ExportError(f"{path} is not the list of an export's files: {error}.") from error


def read_listed_files(contents):
    """The files of a manifest's contents; ValueError unless each is a name that an export writes, with a SHA-256."""
    if not isinstance(contents, dict) or contents.get("made_by") != MAKER:
        raise ValueError(f"made_by is not {MAKER!r}")
    if contents.get("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT}, the one that this version of the package knows")
    files = contents.get("files")
    if not isinstance(files, dict) or not files:
        raise ValueError("it lists no files")
    for name, digest in files.items():
        if not NAMES.fullmatch(name):
            raise ValueError(f"it lists {name!r}, which no export writes")
        if not isinstance(digest, str) or not re.fullmatch(f"[0-9a-f]{{{DIGITS}}}", digest, re.ASCII):
            raise ValueError(f"the SHA-256 of {name} is not 64 hexadecimal digits")
    return files


def seal(path, append, data=()):
    """Seals the file `path`.

    Args:
        append: function of the path, a key and a text, which makes the file end in that text and leaves it valid.
        data: names of the files in the same folder that belong to it.
    """
    files = {name: sha256_of_regular(path.with_name(name)) for name in data}
    append(path, SEAL, f"{json.dumps(files)} {'0' * DIGITS}")
    digest = digest_before_seal(path)
    with open(path, "r+b") as file:
        file.seek(-DIGITS, os.SEEK_END)
        file.write(digest.encode())


def digest_before_seal(path):
    """SHA-256 of a file without its last 64 bytes."""
    total, left = hashlib.sha256(), path.stat().st_size - DIGITS
    with open(path, "rb") as file:
        while left > 0 and (part := file.read(min(left, 1 << 20))):
            total.update(part)
            left -= len(part)
    return total.hexdigest()


def read_seal(path):
    """{name: SHA-256} of the file `path` and of the files that belong to it; None unless its seal is intact."""
    path = Path(path)
    if path.is_symlink() or not path.is_file():
        return None
    with open(path, "rb") as file:
        file.seek(-min(path.stat().st_size, 4096), os.SEEK_END)
        found = SEALED.search(file.read())
    if found is None or found[2].decode() != digest_before_seal(path):
        return None
    try:
        data = {name: digest for name, digest in json.loads(found[1]).items() if data_files(path.stem).fullmatch(name)}
    except ValueError:
        return None
    return {path.name: sha256_of_regular(path), **data}
