"""Records what this package writes in a folder, with digests, so that it replaces or removes nothing else.

A folder has a record, a JSON file: {"files": {name: SHA-256}} and a few fields more. A file is entered before it takes
its name. Until then its entry lists the digests of the old file and the new one: at whatever moment a kill comes, the
record knows what was written here.

This guards against accidents and unpacked folders, not against somebody who may write in the folder meanwhile.
"""

import contextlib
import json
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import filelock

from keras_vit.errors import KerasVitError
from keras_vit.files import read_record, sha256, sha256_of_regular, write_whole

DIGEST = re.compile("[0-9a-f]{64}", re.ASCII)


def partial_path(path: Path) -> Path:
    """The path to write a file at until it is complete; by its name a later process knows what a killed one left."""
    return path.with_name(f"partial.{path.name}")


def is_digest(value: object) -> bool:
    """Whether a value is a SHA-256 in hexadecimal."""
    return isinstance(value, str) and DIGEST.fullmatch(value) is not None


def is_regular(path: Path) -> bool:
    """Whether a file is there that is neither a link nor a device."""
    return os.path.lexists(path) and stat.S_ISREG(path.lstat().st_mode)


def files_in(folder: Path) -> list[str]:
    """The names of all files below `folder`, links among them, with "/" between the parts; sorted."""
    names = []
    for parent, folders, files in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        names += [Path(parent, name).relative_to(folder).as_posix() for name in files + links]
    return sorted(names)


def remove_empty_folders(home: Path, name: str) -> None:
    """Removes the folders of a removed file, below `home`, that are empty now."""
    with contextlib.suppress(OSError):
        for folder in list(PurePosixPath(name).parents)[:-1]:
            (home / folder).rmdir()


def back_up(path: Path, backup: Path) -> None:
    """Gives a file a second name, on the same disk."""
    backup.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(path, backup)
    except OSError:  # a file system without hard links
        shutil.copyfile(path, backup)


@contextlib.contextmanager
def lock(path: Path, busy: KerasVitError) -> Iterator[None]:
    """Holds the lock file `path`, and removes it at the end; raises `busy` when another process holds it.

    The lock ends with the process, however that ends.
    """
    held = filelock.FileLock(path)
    try:
        held.acquire(timeout=0)
    except filelock.Timeout as error:
        raise busy from error
    except NotImplementedError:
        pass  # a file system without locks
    try:
        yield
    finally:
        # Before the release: a process that waits for it then finds a file without a name, and makes a new one.
        with contextlib.suppress(OSError):
            path.unlink()
        held.release()


class OwnFolder:
    """A folder with a record of what one writer has written there. A subclass names the writer.

    >>> class Notes(OwnFolder):
    ...     record, names, writer, error = "notes.json", re.compile("[a-z]+[.]txt"), "a note taker", KerasVitError
    >>> notes = Notes("notes")
    >>> notes.require_own(["today.txt"])
    >>> with notes.writing("today.txt") as path:
    ...     _ = path.write_text("rain")
    >>> list(notes.digests())
    ['today.txt']
    """

    record: ClassVar[str]  # the record's path in the folder
    names: ClassVar[re.Pattern]  # of all files that the writer may ever write; a record that lists others is foreign
    writer: ClassVar[str]  # "an export", for errors
    error: ClassVar[type[KerasVitError]]
    fields: ClassVar[dict[str, Any]] = {}  # further fields of the record, and their kinds; see `files.read_record`
    longest: ClassVar[int] = 1 << 26  # bytes of the record

    def __init__(self, path: str | os.PathLike):
        self.path = Path(os.path.expanduser(path))
        self.facts: dict[str, Any] = {}  # the values of the further fields, when the record is written
        self.seen: dict[str, tuple] = {}  # {name: (what the system says of the file, its SHA-256)}

    def is_name(self, name: str) -> bool:
        """Whether the writer writes files of that name, below the folder."""
        parts = PurePosixPath(name).parts
        return self.names.fullmatch(name) is not None and ".." not in parts and not name.startswith("/")

    def read(self) -> dict[str, Any] | None:
        """The record, or None if there is none; refuses a damaged one, and one with names that are never written."""
        path = self.path / self.record
        if not os.path.lexists(path):
            return None
        fields = {**self.fields, "files": {self.is_name: (is_digest, [is_digest])}}
        what, advice = f"the list of what {self.writer} wrote", "Choose another folder."
        return read_record(path, fields, what=what, error=self.error, advice=advice, most_bytes=self.longest)

    def entries(self) -> Mapping[str, str | list[str]]:
        """{name: SHA-256} of the files that the record lists; a list of those that a file may have."""
        return (self.read() or {"files": {}})["files"]

    def digests(self) -> dict[str, list[str]]:
        """{name: each SHA-256 that the file may have} of the files that the record lists."""
        return {name: [entry] if isinstance(entry, str) else entry for name, entry in self.entries().items()}

    def save(self, files: Mapping[str, str | list[str]]) -> None:
        """Writes the record of these entries."""
        path = self.path / self.record
        path.parent.mkdir(parents=True, exist_ok=True)
        with write_whole(path, partial_path(path)) as unfinished:
            unfinished.write_text(json.dumps({**self.facts, "files": files}, indent=1) + "\n", "utf-8")

    def digest_of(self, name: str) -> str:
        """The SHA-256 of a regular file; reads it again only if it has changed."""
        facts = os.lstat(self.path / name)
        state = (facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        if self.seen.get(name, (None,))[0] != state:
            self.seen[name] = (state, sha256_of_regular(self.path / name))
        return self.seen[name][1]

    def is_own(self, name: str, known: Iterable[str]) -> bool:
        """Whether an existing file has one of the digests that it may have; a link never has."""
        return bool(known) and is_regular(self.path / name) and self.digest_of(name) in known

    def require_own(self, names: Iterable[str]) -> None:
        """Refuses to go on if a file of these names is not own, or has changed since; reads each that exists."""
        known = self.digests()
        begun = known or self.read() is not None
        for name in sorted(names):
            path = self.path / name
            self.require_plain_folders(name)
            foreign = [path] if os.path.lexists(path) and not self.is_own(name, known.get(name, ())) else []
            if not begun and os.path.lexists(partial_path(path)):
                foreign.append(partial_path(path))
            if foreign:
                raise self.error(
                    f"{foreign[0]} was not written by {self.writer}, or was changed since: it stays as it is, and "
                    "nothing was written. Move it away, or choose another path."
                )

    def require_plain_folders(self, name: str) -> None:
        """Refuses a link or a file where a folder for the file `name` is needed."""
        for parent in list(PurePosixPath(name).parents)[:-1]:
            folder = self.path / parent
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # the folder above is asked, too
                if not stat.S_ISDIR(folder.lstat().st_mode):
                    raise self.error(
                        f"{folder} is not a folder that {self.writer} made: it stays as it is, and nothing was "
                        "written. Move it away, or choose another path."
                    )

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yields the path to write a file to; the file takes its name when it is complete and entered.

        The caller has called `require_own` before. What a killed process left of the file is replaced, never followed.
        """
        if not self.is_name(name):
            raise ValueError(f"{self.writer} writes no {name!r}")  # the record would be one that it never wrote
        path, known = self.path / name, self.digests()
        if not known:
            self.save({})  # a kill then leaves an unfinished file beside the record that explains it
        with write_whole(path, partial_path(path)) as unfinished:
            yield unfinished
            digest = sha256(unfinished)
            self.save({**self.entries(), name: [*known.get(name, []), digest]})
        self.save({**self.entries(), name: digest})

    def remove(self, names: Iterable[str]) -> None:
        """Removes files that the record lists, what a killed process left of them, and folders that are then empty."""
        left = dict(self.entries())
        for name in [name for name in names if name in left]:
            path = self.path / name
            path.unlink(missing_ok=True)
            partial_path(path).unlink(missing_ok=True)
            remove_empty_folders(self.path, name)
            del left[name]
        self.save(left)

    def enter(self, names: Iterable[str]) -> None:
        """Makes the record list these files, which others have written for this writer, as they are now."""
        self.save({name: self.digest_of(name) for name in names})

    def take(self, staging: Path) -> list[str]:
        """Replaces all that was written here by the files of the folder `staging`/new, on the same disk.

        The record, if it is one of them, takes its place last. An error puts back what stood before, from
        `staging`/old. After a kill the record still lists both, and the next call replaces either. Returns the names of
        the files that were removed, since there is no new one of that name.
        """
        new = {name: [sha256_of_regular(staging / "new" / name)] for name in files_in(staging / "new")}
        old = self.digests()
        self.require_own({**old, **new})
        names = [*sorted({*old, *new} - {self.record}), self.record]
        for name in names:
            if (self.path / name).exists():
                back_up(self.path / name, staging / "old" / name)
        gone = sorted(name for name in set(old) - set(new) if (self.path / name).exists())
        try:
            self.save({name: list(dict.fromkeys(old.get(name, []) + new.get(name, []))) for name in {**old, **new}})
            for name in sorted(new, key=lambda name: name == self.record):
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(staging / "new" / name, self.path / name)
            for name in gone:
                (self.path / name).unlink()
            self.save({name: digest for name, (digest,) in new.items()})
        except BaseException:
            self.put_back(names, staging / "old")
            raise
        for name in gone:
            remove_empty_folders(self.path, name)
        return gone

    def put_back(self, names: Iterable[str], backups: Path) -> None:
        """Restores the files of these names from their backups, and removes those that have none."""
        try:
            for name in sorted(names, key=lambda name: not (backups / name).exists()):
                if (backups / name).exists():
                    os.replace(backups / name, self.path / name)
                else:
                    (self.path / name).unlink(missing_ok=True)
                    remove_empty_folders(self.path, name)
        except OSError as error:
            raise self.error(
                f"{self.path} has both old and new files: writing there failed, and the old files could not be put "
                f"back: {error.strerror or error}. Write there again to replace all of them."
            ) from error
