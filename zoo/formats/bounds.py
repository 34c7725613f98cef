"""Limits on what an untrusted file may claim.

The size of a file limits its cost before it is refused: an archive may unpack to at most eight times its size, plus
`SLACK`. Tensors, layers and descriptions cost time and memory in Python, so their numbers have the limits below.
"""

import io
import json
import zipfile
from pathlib import Path

from keras_vit.models import cost
from keras_vit.zoo.formats.checkpoint import Fault, blame_file

SLACK = 2**24  # bytes that any file may unpack to: a head of zeros compresses to nothing
MOST_TENSORS = 2**15  # H/14 with two optimizer slots has some 1,500
MOST_LAYERS = 500  # blocks and units; R200x3 has 66
MOST_JSON = 2**22  # bytes; the names of 21,843 classes take 0.7 million
MOST_DIRECTORY = 2**22  # bytes of a zip archive's list of members; zipfile makes an object of 330 bytes from each
MOST_MISSING = 0.5  # of a model's numbers; with fewer missing, it is built so that each missing tensor is named


class ShortReads(io.FileIO):
    """A file that refuses the long read by which zipfile would load a list of too many members."""

    def read(self, size=-1):
        if size > MOST_DIRECTORY:
            raise ValueError(f"its list of members takes {size:,} bytes, and at most {MOST_DIRECTORY:,} are read")
        return super().read(size)


def require_few(tensors):
    if tensors > MOST_TENSORS:
        raise Fault(f"holds {tensors:,} tensors; checkpoints of at most {MOST_TENSORS:,} are read.")


def most_bytes(path):
    """The most bytes that a file may unpack to."""
    return 8 * path.stat().st_size + SLACK


def require_honest(members, path):
    """Refuses an archive that claims many times its size: trained weights hardly compress."""
    require_few(len(members))
    if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in members):
        raise Fault("is compressed by a method that checkpoints do not use; expected stored or deflated members.")
    promised = sum(member.file_size for member in members)
    if promised > most_bytes(path):
        raise Fault(
            f"has {path.stat().st_size:,} bytes and claims {promised:,} bytes of tensors; weights do not compress so "
            "well."
        )


def open_archive(path: Path, complaint: str) -> zipfile.ZipFile:
    """Opens the zip archive at `path`, unless it claims more than its bytes can hold.

    Raises:
        Fault: for a file that is not a zip archive, or that claims too much.
    """
    with blame_file(complaint):
        with ShortReads(path) as file:
            zipfile.ZipFile(file)
        archive = zipfile.ZipFile(path)
    require_honest(archive.infolist(), path)
    return archive


def parse_json(text):
    """Parses the JSON text of a description."""
    if len(text) > MOST_JSON:
        raise Fault(f"has a description of over {MOST_JSON >> 20} MiB.")
    with blame_file("contains a model description that is not valid JSON"):
        return json.loads(text)


def require_plausible(config, numbers, share=1):
    """Refuses a configuration with more parameters than the file has numbers, before anything is built.

    With `share` below 1, the file needs only this share of the parameters.
    """
    needed = cost.count_parameters(config)
    if share * needed > numbers:
        raise Fault(f"describes a model of {needed:,} parameters but holds only {numbers:,} numbers.")
    if cost.count_layers(config) > MOST_LAYERS:
        raise Fault(
            f"describes a model of {cost.count_layers(config):,} layers; models of at most {MOST_LAYERS} are built."
        )
