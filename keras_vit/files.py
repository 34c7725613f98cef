"""Files that are whole or not there, and the digest that identifies one."""

import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

# Links are not followed, and a pipe is not waited for.
REGULAR_ONLY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


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


def sha256_of_regular(path: str | os.PathLike) -> str:
    """The SHA-256 of a regular file, in hexadecimal.

    Raises:
        OSError: when it is a link, a device or a pipe.
    """
    with open(os.open(path, os.O_RDONLY | REGULAR_ONLY), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError("it is not a regular file")
        return hashlib.file_digest(file, "sha256").hexdigest()
