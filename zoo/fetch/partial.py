"""The file that is being received: what has come survives a killed process, and is continued by the next."""

import dataclasses
import shutil

from keras_vit.errors import DownloadError
from keras_vit.files import open_regular
from keras_vit.zoo.fetch.cache import is_single, read_note, write_note
from keras_vit.zoo.fetch.replies import Remote, is_remote


class Partial:
    """The bytes received so far, and beside them what is known of the whole file."""

    def __init__(self, path):
        self.path = path
        self.note = path.with_name(path.name + ".json")

    def size(self):
        return self.path.stat().st_size if is_single(self.path) else 0

    def remote(self):
        """The `Remote` that the bytes so far belong to, or None."""
        fields = read_note(self.note) if is_single(self.path) else {}
        return Remote(**fields) if is_remote(fields) else None

    def start(self, remote):
        """Begins the file anew, for the bytes of `remote`."""
        self.discard()
        with open(self.path, "xb"):
            write_note(self.note, dataclasses.asdict(remote))

    def open(self):
        """The file, to be written to, unbuffered: what has come survives a killed process."""
        return open_regular(self.path, "r+b", buffering=0)

    def discard(self):
        self.path.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)


def space_error(path, what):
    return DownloadError(
        f"{path} cannot be written: {what}. Free some space, or set KERAS_VIT_CACHE to a folder elsewhere; what has "
        "come is kept."
    )


def require_space(remote, offset, path):
    """Refuses the rest of a file, from byte `offset`, for which the disk has no space."""
    free = shutil.disk_usage(path.parent).free
    if remote.total is not None and remote.total - offset > free:
        raise space_error(path, f"{remote.total - offset:,} bytes are to come, {free:,} are free")


def write_chunk(file, chunk, path):
    """Writes all of `chunk`; one call of an unbuffered file's `write` may write a part."""
    view = memoryview(chunk)
    try:
        while view:
            view = view[file.write(view) :]
    except OSError as error:
        raise space_error(path, error.strerror or str(error)) from error
