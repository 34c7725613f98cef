"""Files of the cache: written whole or continued, and never through a link that somebody laid there."""

import contextlib
import dataclasses
import json
import os
import re
import shutil
import stat

from keras_vit.errors import DownloadError
from keras_vit.files import write_whole

MOST_JSON = 1 << 16  # bytes
STRONG = re.compile(r'"[\x21\x23-\x7e]*"')  # an ETag that no two versions share
NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # O_NONBLOCK: a pipe is no reason to wait


@dataclasses.dataclass(frozen=True)
class Remote:
    """What a server says of a file.

    Args:
        url: the address, fit to be shown.
        total: bytes, or None.
        version: a strong ETag, or None: by RFC 9110 (8.8.1) a weak one is shared by different bytes.
        checksums: of the whole, as `integrity.promises` gives them.
    """

    url: str
    total: int | None
    version: str | None
    checksums: dict

    @property
    def resumable(self):
        """Whether a later piece can be known to be of the same file."""
        return bool(self.version or self.checksums)


def is_remote(fields):
    """Whether they are what `Partial` wrote of a `Remote`."""
    if fields.keys() != {field.name for field in dataclasses.fields(Remote)}:
        return False
    url, total, version, checksums = (fields[name] for name in ("url", "total", "version", "checksums"))
    texts = [url, version or '""', *checksums.values()] if isinstance(checksums, dict) else [None]
    if not all(isinstance(text, str) for text in texts) or not checksums.keys() <= {"md5", "crc32c", "sha256"}:
        return False
    return STRONG.fullmatch(texts[1]) is not None and (total is None or type(total) is int)


class Partial:
    """The file that is being received, and beside it what is known of the whole."""

    def __init__(self, path):
        self.path = path
        self.note = path.with_name(path.name + ".json")

    def size(self):
        return self.path.stat().st_size if is_single(self.path) else 0

    def remote(self):
        """The whole that the bytes so far belong to, or None."""
        found = read_json(self.note) if is_single(self.path) else {}
        return Remote(**found) if is_remote(found) else None

    def start(self, remote):
        """Begins the file anew, for the bytes of `remote`."""
        self.discard()
        with open(self.path, "xb"):
            write_json(self.note, dataclasses.asdict(remote))

    def opened(self):
        """The file, to be written on, unbuffered: what has come survives a killed process."""
        return open(self.path, "r+b", buffering=0, opener=lambda path, flags: os.open(path, flags | NO_LINK))

    def discard(self):
        self.path.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)


def is_regular(path):
    """Whether a file of its own is there, not a link to one."""
    with contextlib.suppress(OSError):
        return stat.S_ISREG(path.lstat().st_mode)
    return False


def is_single(path):
    """Whether it is a file of its own that has no other name either."""
    return is_regular(path) and path.lstat().st_nlink <= 1


def make_folders(root, path):
    """Makes the folders of `path` under `root`; one of them that is a link leads out of the cache, and is refused."""
    root.mkdir(parents=True, exist_ok=True)
    folder = root
    for name in path.parent.relative_to(root).parts:
        folder /= name
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
        if folder.is_symlink() or not folder.is_dir():
            raise DownloadError(f"{folder} is in the way: expected a folder, not a link or file. Remove it.")


def read_json(path):
    """The object in a file; {} where there is none, or something else."""
    try:
        with open(path, "rb", opener=lambda path, flags: os.open(path, flags | NO_LINK)) as file:
            found = json.loads(file.read(MOST_JSON))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write_json(path, value):
    """Writes so that a reader sees the old or the new, never a part."""
    with write_whole(path) as temporary, open(temporary, "x", encoding="utf-8") as file:
        json.dump(value, file)


def require_space(remote, offset, path):
    free = shutil.disk_usage(path.parent).free
    if remote.total is not None and remote.total - offset > free:
        raise no_space(path, f"{remote.total - offset:,} bytes are to come, {free:,} are free")


def no_space(path, what):
    return DownloadError(
        f"{path} cannot be written: {what}. Free some space, or set KERAS_VIT_CACHE to a folder elsewhere; what has "
        "come is kept."
    )


def write(file, chunk, path):
    view = memoryview(chunk)
    try:
        while view:
            view = view[file.write(view) :]
    except OSError as error:
        raise no_space(path, error.strerror or str(error)) from error
