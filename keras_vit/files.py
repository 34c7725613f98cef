"""Files that are whole or not there, that are regular or not opened, and the digest that identifies one."""

import contextlib
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

NO_LINK = getattr(os, "O_NOFOLLOW", 0)
# O_NONBLOCK: a pipe that nobody writes to would be waited for.
NO_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


@contextlib.contextmanager
def write_whole(path: str | os.PathLike, temporary: Path | None = None) -> Iterator[Path]:
    """Yields a path to write to, beside `path`; what is written there takes the name `path` once it is on the disk.

    An error inside leaves what `path` held before, and nothing else.

    Args:
        temporary: the path to yield; by default a hidden name that no other process chooses, with the same ending.

    >>> with write_whole("curves.png") as path:  # doctest: +SKIP
    ...     figure.savefig(path)
    """
    path = Path(path)
    temporary = temporary or path.with_name(f".{secrets.token_hex(8)}.{path.name}")
    try:
        yield temporary
        with open(temporary, "r+b") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def make_folder(folder: Path) -> Iterator[None]:
    """Makes a folder and those above it; an error inside removes those of them again that are still empty."""
    missing = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for path in missing:
            with contextlib.suppress(OSError):
                path.rmdir()
        raise


def sha256(path: str | os.PathLike) -> str:
    """The SHA-256 of a file, in hexadecimal; a link is followed."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_regular(
    path: str | os.PathLike, mode: str = "rb", *, follow_links: bool = False, buffering: int = -1
) -> BinaryIO:
    """Opens a regular file as `open` does.

    Raises:
        OSError: when it is a device, a pipe or a folder, or, unless `follow_links`, a link.
    """
    extra = NO_WAIT if follow_links else NO_WAIT | NO_LINK
    file = open(path, mode, buffering, opener=lambda path, flags: os.open(path, flags | extra))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError("it is not a regular file")
    return file


def read_json(path: str | os.PathLike, most_bytes: int, *, follow_links: bool = False) -> object:
    """The JSON value in a regular file.

    Raises:
        OSError: as `open_regular`.
        ValueError, RecursionError: when the file is not JSON in UTF-8, or is longer than `most_bytes`.
    """
    with open_regular(path, follow_links=follow_links) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"it has more than {most_bytes:,} bytes")
    return json.loads(content.decode("utf-8"))


def sha256_of_regular(path: str | os.PathLike) -> str:
    """The SHA-256 of a regular file, in hexadecimal.

    Raises:
        OSError: when it is a link, a device or a pipe.
    """
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
