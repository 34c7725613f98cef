"""What this package has written in a folder, kept with digests, so that it replaces or removes that and nothing else.

A folder has a record, a JSON file: {"files": {name: SHA-256}} and a few fields more. A file is entered before it takes
its name. While it may be the old one or the new one, its entry is a list of both digests, so that after a kill at any
moment what was written here is still known.

This guards against accidents and unpacked folders, not against somebody who may write in the folder meanwhile.
"""

import contextlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import filelock

from keras_vit.errors import KerasVitError
from keras_vit.files import read_record, sha256, sha256_of_regular, write_whole

DIGEST = re.compile("[0-9a-f]{64}", re.ASCII)


def partial_path(path: Path) -> Path:
    """Where `path` is written until it is complete: a name by which a later process knows what a killed one left."""
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


@contextlib.contextmanager
def lock(path: Path, busy: KerasVitError) -> Iterator[None]:
    """Holds the lock file `path`, which goes with the process, however that ends, and is removed at the end.

    Raises:
        KerasVitError: `busy`, when another process holds it.
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
        # While it is held: who has opened it and waits then sees a file without a name, and makes a new one.
        with contextlib.suppress(OSError):
            path.unlink()
        held.release()


class OwnFolder:
    """A folder with a record of what one writer has written there. A subclass says who that is.

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

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)
        self.facts: dict[str, Any] = {}  # the values of the further fields, when the record is written
        self.seen: dict[str, tuple] = {}  # {name: (what the system says of the file, its SHA-256)}

    def is_name(self, name: str) -> bool:
        """Whether the writer writes files of that name, which lies below the folder."""
        parts = PurePosixPath(name).parts
        return self.names.fullmatch(name) is not None and ".." not in parts and not name.startswith("/")

    def read(self) -> dict[str, Any] | None:
        """The record, or None where there is none.

        Raises:
            KerasVitError: `error`, when it is damaged, or lists what the writer never writes.
        """
        path = self.path / self.record
        if not os.path.lexists(path):
            return None
        fields = {**self.fields, "files": {self.is_name: (is_digest, [is_digest])}}
        what, advice = f"the list of what {self.writer} wrote", "Choose another folder."
        return read_record(path, fields, what=what, error=self.error, advice=advice)

    def digests(self) -> dict[str, list[str]]:
        """{name: the SHA-256 that the file may have}, of what the record lists."""
        files = (self.read() or {"files": {}})["files"]
        return {name: [digest] if isinstance(digest, str) else digest for name, digest in files.items()}

    def save(self, files: dict[str, list[str]]) -> None:
        """Writes the record of these files, which are {name: the SHA-256 that it may have}."""
        path = self.path / self.record
        path.parent.mkdir(parents=True, exist_ok=True)
        settled = {name: known[0] if len(known) == 1 else known for name, known in files.items()}
        with write_whole(path, partial_path(path)) as unfinished:
            unfinished.write_text(json.dumps({**self.facts, "files": settled}, indent=1) + "\n", "utf-8")

    def digest_of(self, name: str) -> str:
        """The SHA-256 of a regular file, which is not read again while it is the same file, unchanged."""
        facts = os.lstat(self.path / name)
        state = (facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        if self.seen.get(name, (None,))[0] != state:
            self.seen[name] = (state, sha256_of_regular(self.path / name))
        return self.seen[name][1]

    def is_own(self, name: str, known: Iterable[str]) -> bool:
        """Whether a file that is there has one of the digests that it may have; a link never has."""
        return bool(known) and is_regular(self.path / name) and self.digest_of(name) in known

    def require_own(self, names: Iterable[str]) -> None:
        """Refuses to go on where a file of these names is there that was not written here, or was changed since.

        Every file that is there is read.

        Raises:
            KerasVitError: `error`, which names the file.
        """
        known, begun = self.digests(), self.read() is not None
        for name in names:
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
            if os.path.lexists(folder) and (folder.is_symlink() or not folder.is_dir()):
                raise self.error(
                    f"{folder} is not a folder that {self.writer} made: it stays as it is, and nothing was written. "
                    "Move it away, or choose another path."
                )

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """The path to write a file to, which takes its name when it is complete and entered.

        The caller has asked `require_own`. What a killed process has left of the file is replaced, never followed.
        """
        path, known = self.path / name, self.digests()
        if not known:
            self.save({})  # so that a kill leaves an unfinished file beside the record that explains it
        with write_whole(path, partial_path(path)) as unfinished:
            yield unfinished
            digest = sha256(unfinished)
            self.save({**self.digests(), name: [*known.get(name, []), digest]})
        self.save({**self.digests(), name: [digest]})

    def remove(self, names: Iterable[str]) -> None:
        """Removes files that the record lists, with what a killed process left of them, and folders then empty."""
        left = self.digests()
        for name in [name for name in names if name in left]:
            path = self.path / name
            path.unlink(missing_ok=True)
            partial_path(path).unlink(missing_ok=True)
            remove_empty_folders(self.path, name)
            del left[name]
        self.save(left)

    def take(self, source: Path, last: str | None = None) -> list[str]:
        """Replaces all that was written here by the files of the folder `source`, on the same disk.

        After a kill meanwhile the record still lists both, and the next call replaces either.

        Args:
            last: the file that takes its place when all others have.

        Returns:
            The names of the files that were removed, since `source` has none of that name.
        """
        new = {name: sha256_of_regular(source / name) for name in files_in(source)}
        old = self.digests()
        self.require_own({*old, *new})
        self.save(old | {name: [*old.get(name, []), digest] for name, digest in new.items()})
        gone = sorted(name for name in set(old) - set(new) if (self.path / name).exists())
        for name in gone:
            (self.path / name).unlink()
            remove_empty_folders(self.path, name)
        for name in sorted(new, key=lambda name: name == last):
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(source / name, self.path / name)
        self.save({name: [digest] for name, digest in new.items()})
        return gone
