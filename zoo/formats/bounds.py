"""How far a stranger's file is believed, and how its faults are told.

What a file costs before it is refused is bounded by its own bytes: an archive unpacks to at most eight times its size
and `SLACK`; of tensors, layers and descriptions, whose cost is Python's own, there may be so many as below.
"""

import contextlib
import io
import json
import zipfile

from keras_vit.errors import CheckpointError, KerasVitError

SLACK = 2**24  # bytes that any file may unpack to, however small: a head of zeros compresses to nothing
MOST_TENSORS = 2**15  # H/14 with two optimizer slots has some 1,500
MOST_LAYERS = 500  # blocks and units; R200x3 has 66
MOST_JSON = 2**22  # bytes; the names of 21,843 classes take 0.7 million
MOST_DIRECTORY = 2**22  # bytes of a zip archive's list of members, of which zipfile makes an object of 330 bytes each


@contextlib.contextmanager
def foreign(path, complaint):
    """A scope in which a library reads a stranger's bytes: whatever it raises becomes a CheckpointError.

    Libraries raise what their authors did not foresee, so no list of exceptions is ever whole. Nothing but such reading
    belongs into the scope, where a mistake of this package would be taken for the file's.
    """
    try:
        yield
    except KerasVitError:
        raise
    except Exception as error:
        cause = str(error).rstrip(".") or type(error).__name__
        raise CheckpointError(f"{path} {complaint}: {cause}. Fetch the file again from its source.") from error


class ShortReads(io.FileIO):
    """A file that refuses to be read in one go as far as zipfile reads the list of an archive with too many members."""

    def read(self, size=-1):
        if size > MOST_DIRECTORY:
            raise ValueError(f"its list of members takes {size:,} bytes, and at most {MOST_DIRECTORY:,} are read")
        return super().read(size)


def open_archive(path, complaint):
    """The zip archive at `path`, if it promises no more than its bytes can hold.

    Raises:
        CheckpointError: for a file that is not a zip archive, or whose directory is a trap.
    """
    with foreign(path, complaint):
        with ShortReads(path) as file:
            zipfile.ZipFile(file)
        archive = zipfile.ZipFile(path)
    require_honest(path, archive.infolist())
    return archive


def require_honest(path, members):
    """Trained weights hardly compress: an archive that promises many times its size is a trap."""
    require_few(path, len(members))
    if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in members):
        raise CheckpointError(f"{path} is packed in a way that no checkpoint is; expected stored or deflated members.")
    promised = sum(member.file_size for member in members)
    if promised > most_bytes(path):
        raise CheckpointError(
            f"{path} of {path.stat().st_size:,} bytes promises {promised:,} bytes of tensors, which are not weights."
        )


def most_bytes(path):
    """To how many bytes a file may unpack."""
    return 8 * path.stat().st_size + SLACK


def require_few(path, tensors):
    if tensors > MOST_TENSORS:
        raise CheckpointError(f"{path} holds {tensors:,} tensors; checkpoints of at most {MOST_TENSORS:,} are read.")


def parsed(path, text):
    """The JSON value of a description."""
    if len(text) > MOST_JSON:
        raise CheckpointError(f"{path} has a description of over {MOST_JSON >> 20} MiB.")
    with foreign(path, "holds a description that is not JSON"):
        return json.loads(text)
