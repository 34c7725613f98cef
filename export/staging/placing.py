"""How new files replace old ones so that a process killed at any point loses neither.

1. Every old file gets a second name in the hidden folder (a hard link, or a copy where there are none).
2. A journal with the names and SHA-256 of old and new files appears in the hidden folder.
3. The new files are renamed into their places, the artefact or manifest last; old ones without a successor are removed.
4. The journal is removed: from here on the new files are the export.

Where there is a journal, this process or the next export to the same path restores the old files.
"""

import contextlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from keras_vit.errors import ExportError
from keras_vit.export.formats import data_files
from keras_vit.export.staging.listing import (
    LONGEST,
    MANIFEST,
    NAMES,
    files_in,
    read_manifest,
    read_seal,
)
from keras_vit.files import sha256_of_regular
from keras_vit.text import printable

JOURNAL = "journal.json"
MOST_NAMED = 5


@dataclass(frozen=True)
class Place:
    """Where an export goes: the folder `home`, in it the file that is replaced `last`, and the hidden folder."""

    home: Path
    last: str
    staging: Path

    @property
    def target(self):
        """What the user named: the folder or the file."""
        return self.home if self.last == MANIFEST else self.home / self.last

    def listed(self):
        """{name: SHA-256} of what an earlier export listed here, by a manifest or a seal."""
        if self.last != MANIFEST:
            return read_seal(self.home / self.last) or {}
        files = read_manifest(self.home)
        return {} if files is None else {**files, MANIFEST: sha256_of_regular(self.home / MANIFEST)}

    def may_hold(self, name):
        """Whether exports to this place write files of that name; a journal from elsewhere is not trusted."""
        known = NAMES if self.last == MANIFEST else data_files(Path(self.last).stem)
        return name == self.last or known.fullmatch(name) is not None


def require_replaceable(place, names):
    """Raises unless everything to be replaced or removed is as an earlier export left it; returns the listing."""
    listed = place.listed()
    for name in sorted({*names, *listed}):
        path = place.home / name
        require_plain_folders(place.home, path)
        if not os.path.lexists(path):
            continue
        if name not in listed and read_seal(path) is None:
            raise ExportError(
                f"{path} was not written by an export, or was changed since: it stays as it is, and nothing "
                "was written. Move it away, or choose another path."
            )
        if name in listed and not is_unchanged(path, listed[name]):
            raise ExportError(
                f"{path} was changed after the export that wrote it: it stays as it is, and nothing was "
                "written. Move it away, or choose another path."
            )
    return listed


def require_plain_folders(home, path):
    """No link or file may stand where a folder for `path` is needed."""
    for folder in path.relative_to(home).parents:
        folder = home / folder
        if folder != home and os.path.lexists(folder) and (folder.is_symlink() or not folder.is_dir()):
            raise ExportError(
                f"{folder} is not a folder that an export made: it stays as it is, and nothing was written. "
                "Move it away, or choose another path."
            )


def is_unchanged(path, digest):
    """Whether the file has that SHA-256, or is an artefact that an export to its own path put there."""
    try:
        return sha256_of_regular(path) == digest or read_seal(path) is not None
    except OSError:
        return False


def move_into_place(place, tell):
    """Moves the files of staging/new to their places; see above."""
    new = {name: sha256_of_regular(place.staging / "new" / name) for name in files_in(place.staging / "new")}
    listed = require_replaceable(place, new)
    old = {name: sha256_of_regular(place.home / name) for name in {*new, *listed} if (place.home / name).exists()}
    stale = sorted(set(old) - set(new))
    for name in old:
        back_up(place.home / name, place.staging / "old" / name)
    write_journal(place, {"old": old, "new": new})
    try:
        for name in sorted(new, key=lambda name: name == place.last):
            (place.home / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(place.staging / "new" / name, place.home / name)
        for name in stale:
            (place.home / name).unlink()
    except BaseException:
        undo(place)
        raise
    (place.staging / JOURNAL).unlink()
    remove_empty_folders(place.home, stale)
    if stale:
        tell(f"removed from {printable(place.home)}, of the earlier export: {join_names(stale)}")


def undo(place):
    try:
        restore(place)
    except OSError as error:
        raise ExportError(
            f"The export failed, and the earlier one could not be restored: {error.strerror or error}. Its "
            f"files are in {place.staging / 'old'}; the next export here restores them."
        ) from error


def join_names(names):
    """The first few names, and the number of the others.

    >>> join_names(["a", "b"])
    'a, b'
    """
    rest = len(names) - MOST_NAMED
    return ", ".join(map(printable, names[:MOST_NAMED])) + (f" and {rest} more" if rest > 0 else "")


def back_up(path, backup):
    backup.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(path, backup)
    except OSError:  # a file system without hard links
        shutil.copyfile(path, backup)


def write_journal(place, contents):
    """Writes the journal so that it appears whole, and is on the disk."""
    partial = place.staging / f"{JOURNAL}.partial"
    with open(partial, "w") as file:
        json.dump(contents, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, place.staging / JOURNAL)


def restore(place):
    """Restores what an export that was cut off had begun to replace, and clears the hidden folder.

    Raises:
        ExportError: if a file was changed meanwhile; then nothing changes.
    """
    journal = read_journal(place)
    for name in {**journal["old"], **journal["new"]}:
        require_own(place, name, journal)
    for name in journal["old"]:
        require_plain_folders(place.staging, place.staging / "old" / name)
    for name in set(journal["new"]) - set(journal["old"]):
        (place.home / name).unlink(missing_ok=True)
    for name in journal["old"]:
        if (place.staging / "old" / name).exists():
            (place.home / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(place.staging / "old" / name, place.home / name)
    remove_empty_folders(place.home, journal["new"])
    (place.staging / JOURNAL).unlink(missing_ok=True)
    for path in place.staging.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def require_no_others(place):
    """Raises if the hidden folder contains anything that no export puts there."""
    for name in sorted(set(os.listdir(place.staging)) - {"old", "new", JOURNAL, f"{JOURNAL}.partial"}):
        raise ExportError(
            f"{place.staging / name} is in the folder in which an export works, but no export wrote it. "
            "Move it away, or choose another path."
        )


def read_journal(place):
    """{"old": {name: SHA-256}, "new": likewise} of an export that was cut off; empty where there is none."""
    path = place.staging / JOURNAL
    if not os.path.lexists(path):
        return {"old": {}, "new": {}}
    try:
        sha256_of_regular(path)
        if path.stat().st_size > LONGEST:
            raise ValueError("it is too long")
        journal = json.loads(path.read_text("utf-8"))
        if not all(place.may_hold(name) for part in ("old", "new") for name in journal[part]):
            raise ValueError("it lists files that no export writes")
        return {part: dict(journal[part]) for part in ("old", "new")}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ExportError(
            f"{path} is damaged, so an export that was cut off cannot be undone: {error}. Look "
            "into that folder for files you miss, and remove it."
        ) from error


def require_own(place, name, journal):
    """Raises unless a file that the interrupted export would have replaced is the old one, the new one, or missing."""
    path = place.home / name
    require_plain_folders(place.home, path)
    own = {journal[part].get(name) for part in ("old", "new")}
    if os.path.lexists(path) and (path.is_symlink() or not path.is_file() or sha256_of_regular(path) not in own):
        raise ExportError(
            f"{path} was changed after an export here was cut off. Move it away and export again: this "
            f"restores the files of the earlier export, which are in {place.staging / 'old'}."
        )


def remove_empty_folders(home, names):
    """Removes the folders of removed files that are empty now."""
    for name in names:
        with contextlib.suppress(OSError):
            for folder in list((home / name).relative_to(home).parents)[:-1]:
                (home / folder).rmdir()
