"""Writes files whole or not at all, opens only regular ones, computes digests; tells whether to use the network."""

import contextlib
import errno
import glob
import hashlib
import json
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

from keras_vit.errors import ConfigError, KerasVitError, RecordError, make_presentable, printable

NO_LINK = getattr(os, "O_NOFOLLOW", 0)
# O_NONBLOCK: opening a pipe without a writer would wait forever.
NO_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)

ADDRESS = re.compile(r"([A-Za-z][\w+.-]+):/+")  # at least two letters: C:/ is a disk on Windows
# What to do about an error of the system, by its number
ADVICE = {
    "Make room there, or choose another place.": (errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    "Choose a place that can be written, or change its permissions.": (errno.EROFS, errno.EACCES, errno.EPERM),
    "There is a file where a folder is needed: choose another path.": (errno.ENOTDIR, errno.EEXIST),
}
FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # that begin a formula, also in full width


def is_offline() -> bool:
    """Whether KERAS_VIT_OFFLINE=1 forbids the network."""
    return os.environ.get("KERAS_VIT_OFFLINE", "").strip().casefold() not in ("", "0", "false", "no")


def find_advice(error: Exception) -> str | None:
    """What to do about a system's error, also one that a library has made a text of; None for other errors."""
    known = ((text, os.strerror(number)) for text, numbers in ADVICE.items() for number in numbers)
    return next((text for text, reason in known if reason in str(error)), None)


def as_cell(name: object) -> str:
    """A name as a cell of CSV: in one line, without control characters, with an apostrophe before a formula (OWASP)."""
    text = printable("" if name is None else str(name))
    return f"'{text}" if text.startswith(FORMULA) else text


def describe_refusal(error: OSError) -> str:
    """Describes a system's error for users: the file, the reason, and what to do."""
    advice = find_advice(error) or "Choose another path."
    reason = error.strerror or error
    return make_presentable(f"{error.filename or 'A file'} cannot be read or written: {reason}. {advice}")


def name_address(path: str | os.PathLike) -> str | None:
    """The address, such as gs://bucket/run, if a path is one; None for a path of the file system.

    A `Path` keeps one slash of an address, and would create a folder named "gs:" here.
    """
    return ADDRESS.sub(r"\1://", str(path), count=1) if ADDRESS.match(str(path)) else None


def local_path(path: str | os.PathLike, error: type[KerasVitError] = ConfigError) -> Path:
    """The path to write to, its ~ as the home folder; raises `error` if it is an address."""
    if address := name_address(path):
        raise error(
            f"Files are written to a local or mounted folder. Received: {address}. Mount the bucket (with gcsfuse) or "
            "a persistent disk, and give the path there, such as /mnt/bucket/run."
        )
    return Path(os.path.expanduser(path))


def remove_abandoned(path: Path) -> None:
    """Removes hidden files that killed processes left of `path`, if they were not written to for an hour."""
    for left in path.parent.glob(f".{'[0-9a-f]' * 16}.{glob.escape(path.name)}"):
        with contextlib.suppress(OSError):
            if time.time() - left.lstat().st_mtime > 3600:
                left.unlink()


@contextlib.contextmanager
def write_whole(path: str | os.PathLike, temporary: Path | None = None) -> Iterator[Path]:
    """Yields an empty file to write to, beside `path`; it is renamed to `path` when it is on the disk.

    An error inside leaves the old file at `path`, and nothing else. A later call removes what a killed one left, after
    an hour. The file to write to is `temporary`, replacing any file there, or has a unique hidden name with the same
    ending. Errors of the system name `path`.

    >>> with write_whole("curves.png") as path:  # doctest: +SKIP
    ...     figure.savefig(path)
    """
    path = local_path(path)
    if temporary is None:
        remove_abandoned(path)
        temporary = path.with_name(f".{secrets.token_hex(8)}.{path.name}")
    try:
        temporary.unlink(missing_ok=True)  # a link, not its target
        temporary.touch(exist_ok=False)
        yield temporary
        with open(temporary, "r+b") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        # Without an error number, Python would show a file name but no message.
        if isinstance(error, OSError) and error.errno and error.filename in (None, str(temporary)):
            error.filename = str(path)
        raise


@contextlib.contextmanager
def make_folder(folder: Path) -> Iterator[None]:
    """Makes a folder and those above it; an error inside removes the new ones that are still empty."""
    folder = local_path(folder)
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


def open_regular(path: str | os.PathLike, mode: str = "rb", *, follow_links: bool = False) -> BinaryIO:
    """Opens a regular file as `open` does; OSError for a device, a pipe, a folder or, unless `follow_links`, a link."""
    extra = NO_WAIT if follow_links else NO_WAIT | NO_LINK
    file: Any = open(path, mode, opener=lambda path, flags: os.open(path, flags | extra))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError("it is not a regular file")
    return file


def refuse_constant(name):
    raise ValueError(f"it has the number {name}, which is not JSON")


def read_json(path: str | os.PathLike, most_bytes: int, *, follow_links: bool = False) -> Any:
    """The JSON value in a regular file.

    Raises:
        OSError: as for `open_regular`.
        ValueError: when the file is not JSON in UTF-8, has NaN or infinity, is longer than `most_bytes`, or is nested
            too deeply.
    """
    with open_regular(path, follow_links=follow_links) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"it has more than {most_bytes:,} bytes")
    try:
        return json.loads(content.decode("utf-8"), parse_constant=refuse_constant)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def find_misfit(value, kind, where=""):
    """(path, value) of the first part of a JSON value that is not of its kind, or None; see `read_record` for kinds.

    >>> find_misfit([1, 2], [int]), find_misfit(None, (None, str)), find_misfit({"a": [1, True]}, {"a": [int]})
    (None, None, ('.a[1]', True))
    """
    if isinstance(kind, dict):
        return find_misfit_of_object(value, kind, where)
    if isinstance(kind, list):
        if not isinstance(value, list):
            return where, value
        parts = (find_misfit(part, kind[0], f"{where}[{i}]") for i, part in enumerate(value))
        return next(filter(None, parts), None)
    if isinstance(kind, tuple):
        right = any(find_misfit(value, one) is None for one in kind)
    elif kind is int:
        right = type(value) is int
    elif kind is float:  # or a whole number that a float can hold
        right = type(value) in (int, float) and abs(value) <= sys.float_info.max
    elif isinstance(kind, type):
        right = isinstance(value, kind)
    elif callable(kind):
        right = kind(value)
    else:
        right = type(value) is type(kind) and value == kind
    return None if right else (where, value)


def find_misfit_of_object(value, kind, where):
    if not isinstance(value, dict):
        return where, value
    for name, part in kind.items():
        if not isinstance(name, str):  # one kind for all names, and one for all values
            for key, found in value.items():
                if wrong := find_misfit(key, name, where) or find_misfit(found, part, f"{where}.{key}"):
                    return wrong
        elif name.removesuffix("?") in value or not name.endswith("?"):
            name = name.removesuffix("?")
            if name not in value:
                return f"{where}.{name}", None
            if wrong := find_misfit(value[name], part, f"{where}.{name}"):
                return wrong
    return None


def read_record(
    path: str | os.PathLike,
    fields: Mapping[Any, Any],
    *,
    what: str,
    error: type[KerasVitError] = RecordError,
    advice: str = "",
    most_bytes: int = 1 << 26,
    follow_links: bool = False,
) -> dict[str, Any]:
    """Reads a JSON object from a file of this package, that may be edited or foreign, and checks its fields.

    Args:
        fields: {name: kind}; other fields of the file are ignored. A name that ends in "?" may be missing. A kind is a
            type (`int` and `float` accept no bool, `float` accepts every finite number); a value, for only that value;
            a tuple of kinds, for any of them; a list of one kind, for a list of such parts; a dictionary of fields; or
            a function that tells whether a value is valid. {kind: kind} is for all names and all values.
        what: description of the file for the error: "the record of a search".
        error: the class to raise.
        advice: the error's last sentence.

    Raises:
        RecordError: or `error`, when the file is missing, not regular or damaged, or a field is missing or wrong.

    >>> read_record("runs/1/config.json", {"monitor": str}, what="the configuration of a run")  # doctest: +SKIP
    """
    try:
        record = read_json(path, most_bytes, follow_links=follow_links)
        if wrong := find_misfit(record, dict(fields)):
            name = wrong[0].removeprefix(".")
            raise ValueError(f"{f'its field {name!r}' if name else 'it'} cannot be {json.dumps(wrong[1])[:80]}")
        return record
    except (OSError, ValueError) as refused:
        reason = refused.strerror if isinstance(refused, OSError) and refused.strerror else refused
        raise error(f"{path} is not {what}: {reason}. {advice}".rstrip()) from refused


def sha256_of_regular(path: str | os.PathLike) -> str:
    """The SHA-256 of a regular file, in hexadecimal; OSError for a link, a device or a pipe."""
    with open_regular(path) as file:
        return hashlib.file_digest(cast(Any, file), "sha256").hexdigest()
