"""Makes artefacts appear only when they are complete, and replace only files of an earlier export.

The process locks a hidden folder at the destination, writes the files there, and renames them into their places one
by one. A folder lists its files in a manifest, as `keras_vit.owned` does. A single file ends in a seal: the digests of
the files beside it that belong to it, then the digest of all bytes before.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
from pathlib import Path

from keras_vit.errors import ExportError, KerasVitError, printable, quote_some
from keras_vit.export.formats import FORMATS, data_files, list_data
from keras_vit.export.web import LAYOUT_PATTERN as LAYOUT
from keras_vit.export.web import PATTERN as PAGE
from keras_vit.files import local_path, make_folder, sha256_of_regular
from keras_vit.owned import OwnFolder, files_in, is_regular, lock

HIDDEN = ".keras-vit-export"
PARTS = ("new", "old")  # of the hidden folder: new files, and the files that they replace
MANIFEST = "keras-vit-export.json"
MAKER = "keras_vit.export"
FORMAT = 1  # of the manifest
SEAL = "keras_vit.export.seal"
DIGITS = 64  # of a SHA-256
SEALED = re.compile(rb"%b.{0,9}?(\{.*?\}) ([0-9a-f]{%d})\Z" % (re.escape(SEAL.encode()), DIGITS), re.DOTALL)

# Every name that an export may write. A manifest with another name is foreign: no file is deleted because of it.
COMPANIONS = r"README\.md|predict\.py|examples\.npz|model\.json"
HUB_FILES = (  # of `keras_vit.hub_folder`, besides the card
    *("README.md", "config.json", "preprocessor_config.json", "model.safetensors"),
    *("onnx/model.onnx", "onnx/model_quantized.onnx", "timm/config.json", "timm/model.safetensors"),
)
HUB = "|".join(map(re.escape, HUB_FILES))
ALONE = (row.folder_pattern for row in FORMATS if row.is_folder)
NAMES = re.compile(
    "|".join([COMPANIONS, PAGE, LAYOUT, HUB, *ALONE, *(row.bundled_pattern() for row in FORMATS)]), re.ASCII
)


def seal(path, append):
    """Seals the file `path`; `append`, of the path, a key and a text, makes it end in this text and keeps it valid."""
    files = {file.name: sha256_of_regular(file) for file in list_data(path)}
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
    """{name: SHA-256} of the file `path` and the files that belong to it; None unless its seal is intact."""
    if not is_regular(path):
        return None
    with open(path, "rb") as file:
        file.seek(-min(path.stat().st_size, 4096), os.SEEK_END)
        found = SEALED.search(file.read())
    if found is None or found[2].decode() != digest_before_seal(path):
        return None
    try:
        data = {name: digest for name, digest in json.loads(found[1]).items() if data_files(path).fullmatch(name)}
    except ValueError:
        return None
    return {path.name: sha256_of_regular(path), **data}


class ExportFolder(OwnFolder):
    """A folder that an export writes. It may also replace a sealed file in it, from a separate export to that file.

    >>> ExportFolder("nowhere").digests()
    {}
    """

    record, names, writer, error = MANIFEST, NAMES, "an export", ExportError
    fields = {"made_by": MAKER, "format": FORMAT}
    longest = 1_000_000

    def __init__(self, path):
        super().__init__(path)
        self.facts = self.fields
        self.hidden = self.path / HIDDEN

    def is_own(self, name, known):
        return super().is_own(name, known) or read_seal(self.path / name) is not None

    def take(self, staging):
        for name in files_in(staging / "new"):
            if not self.is_name(name):  # such as a SavedModel's assets
                raise ExportError(
                    f"The model needs the file {name} beside it, and an export cannot contain such a file."
                )
        return super().take(staging)


class SealedFile(OwnFolder):
    """A single file that an export writes, with the files that belong to it; its seal is the record."""

    writer, error = "an export", ExportError

    def __init__(self, path):
        super().__init__(path.parent)
        self.record = path.name
        self.hidden = self.path / f".{path.name}{HIDDEN}"

    def read(self):
        files = read_seal(self.path / self.record)
        return None if files is None else {"files": files}

    def save(self, files):
        """Does nothing: renaming the sealed file records it."""

    def remove_orphans(self):
        """Removes data that a killed export left: written before its file, or not removed yet."""
        own = self.digests()
        for part in (self.hidden / "new", self.hidden / "old"):
            for name, digest in (read_seal(part / self.record) or {}).items():
                is_placed = part.name == "old" or not (part / name).exists()
                if name not in own and is_placed and self.is_own(name, [digest]):
                    (self.path / name).unlink()


@contextlib.contextmanager
def stage(path, names, *, is_folder, tell=None):
    """Yields a path in a hidden folder; the files written there replace an earlier export at `path`.

    A folder is new and empty, and gets its manifest at the end; the caller must seal a file. A killed process leaves
    the hidden folder; the next export to the same path clears it.

    Args:
        path: path of the file or folder.
        names: names of the files that will be written, as far as they are known.
        tell: called with a line of text on files of the earlier export that are removed.

    Raises:
        ExportError: if nothing can be written there, or a file in the way was not written by an export.
    """
    with raise_file_errors(path):
        place = place_of(path, is_folder)
        with make_folder(place.path), hold_hidden_folder(place, path):
            place.require_own({*names, *place.digests()})
            new = place.hidden / "new"
            new.mkdir()
            yield new if is_folder else new / place.record
            gone = place.take(place.hidden)
    if gone and tell is not None:
        tell(f"removed from {printable(place.path)}, of the earlier export: {quote_some(gone, printable)}")


def place_of(path, is_folder):
    """The folder or file to write for `path`. A link to a folder stands for that folder."""
    path = local_path(path, ExportError)
    if is_folder:
        if path.exists() and not path.is_dir():
            raise ExportError(f"{path} is a file, but the export is a folder. Choose another path.")
        return ExportFolder(os.path.realpath(path))
    if path.is_dir():
        raise ExportError(f"{path} is a folder. Expected a path where a {path.suffix} file can be written.")
    return SealedFile(Path(os.path.realpath(path.parent), path.name))


@contextlib.contextmanager
def raise_file_errors(path):
    """A context that turns an OSError, such as a full disk or a missing permission, into an ExportError."""
    try:
        yield
    except KerasVitError:  # a DownloadError is also an OSError, and says what to do
        raise
    except OSError as error:
        raise ExportError(
            f"The export to {path} failed: {error.strerror or error}. What was there before is "
            "unchanged. Make room, or choose another path."
        ) from error


@contextlib.contextmanager
def hold_hidden_folder(place, path):
    """Makes and locks the hidden folder, and clears it of a killed export's files; removes it at the end."""
    for part in PARTS:
        place.require_plain_folders(f"{place.hidden.name}/{part}/name")
    busy = ExportError(f"Another export writes to {path} now. Wait for it, or choose another path.")
    with contextlib.ExitStack() as held:
        held.callback(remove_empty, place.hidden)
        try:
            place.hidden.mkdir(exist_ok=True)
            foreign = sorted(set(os.listdir(place.hidden)) - {*PARTS, "lock"})
            if not foreign:
                held.enter_context(lock(place.hidden / "lock", busy))
        except (FileNotFoundError, FileExistsError):  # another export has just removed the folder
            raise busy from None
        if foreign:
            raise ExportError(
                f"{place.hidden / foreign[0]} is in the working folder of exports, but no export wrote it. "
                "Move it away, or choose another path."
            )
        if isinstance(place, SealedFile):
            place.remove_orphans()
        clear(place.hidden)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                clear(place.hidden)


def remove_empty(folder):
    with contextlib.suppress(OSError):  # another export works in it
        folder.rmdir()


def clear(hidden):
    for part in PARTS:
        if (hidden / part).exists():
            shutil.rmtree(hidden / part)
