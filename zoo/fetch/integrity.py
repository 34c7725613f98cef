"""Checksums of a file, of the kinds that servers announce."""

import base64
import hashlib

import google_crc32c

BLOCK = 1 << 22


def start_digest(name):
    return google_crc32c.Checksum() if name == "crc32c" else hashlib.new(name, usedforsecurity=False)


def to_base64(digest):
    return base64.b64encode(digest).decode()


def compute_checksums(path, names):
    """Checksums of a file by name, as base64 text, in one reading."""
    digests = {name: start_digest(name) for name in names}
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            for digest in digests.values():
                digest.update(block)
    return {name: to_base64(digest.digest()) for name, digest in digests.items()}


def to_hexadecimal(checksum):
    return base64.b64decode(checksum).hex()
