"""Whether a file is the one that was promised: checksums by the server's headers, and CRC-32C."""

import base64
import hashlib
import re

import numpy as np

BLOCK = 1 << 22
POLYNOMIAL = 0x82F63B78  # Castagnoli's, bits reversed


def promises(response):
    """Checksums that the server gave for the whole file: {"md5" | "crc32c" | "sha256": base64 text}.

    From x-goog-hash (Google), an ETag that is an MD5 (object stores only: elsewhere it may be anything), and
    X-Linked-Etag (the Hugging Face Hub, on the redirect).
    """
    headers, found = response.headers, {}
    for part in headers.get("x-goog-hash", "").split(","):
        name, _, value = part.strip().partition("=")
        if name in ("md5", "crc32c"):
            found[name] = value
    is_store = any(name.lower().startswith(("x-goog-", "x-amz-")) for name in headers)
    etag = re.fullmatch('"([0-9a-f]{32})"', headers.get("ETag", ""))
    if is_store and etag and not any("encryption" in name.lower() for name in headers):
        found.setdefault("md5", encoded(bytes.fromhex(etag[1])))
    for step in (*response.history, response):
        linked = re.fullmatch('"?([0-9a-f]{64})"?', step.headers.get("X-Linked-Etag", ""))
        if linked:
            found["sha256"] = encoded(bytes.fromhex(linked[1]))
    return found


def encoded(digest):
    return base64.b64encode(digest).decode()


def checksums(path, names=("sha256",)):
    """Checksums of a file by name, as base64 text, in one reading."""
    digests = {name: Crc32c() if name == "crc32c" else hashlib.new(name, usedforsecurity=False) for name in names}
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            for digest in digests.values():
                digest.update(block)
    return {name: encoded(digest.digest()) for name, digest in digests.items()}


def hexadecimal(checksum):
    return base64.b64decode(checksum).hex()


def byte_table():
    """What a byte does to a state of zeros, for each of the 256."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(POLYNOMIAL), table >> 1)
    return table


def pair_table():
    """The same for two bytes at once, low byte first."""
    table, states = byte_table(), np.arange(1 << 16, dtype=np.uint32)
    for _ in range(2):
        states = table[states & 255] ^ (states >> 8)
    return states


def after_zeros(states, operator):
    """States after the zeros that `operator` (4, 256) stands for."""
    return (
        operator[0][states & 255]
        ^ operator[1][states >> 8 & 255]
        ^ operator[2][states >> 16 & 255]
        ^ operator[3][states >> 24]
    )


def doubling(operator):
    """The operator for twice as many zeros."""
    return after_zeros(operator, operator)


class Crc32c:
    """CRC-32C (RFC 3720) of bytes that come in pieces, computed on many lanes at once.

    Google gives this sum, and for composite objects no other.

    >>> sum = Crc32c(); sum.update(b"123456789"); sum.digest().hex()
    'e3069283'
    """

    WIDTH = 1024  # bytes a lane

    def __init__(self):
        self.state = np.uint32(0xFFFFFFFF)
        self.table, self.pairs = byte_table(), pair_table()
        bytes_, shifts = np.arange(256, dtype=np.uint32), np.arange(0, 32, 8, dtype=np.uint32)
        operator = bytes_[None] << shifts[:, None]  # (4, 256), the identity
        operator = self.table[operator & 255] ^ (operator >> 8)
        for _ in range(self.WIDTH.bit_length() - 1):
            operator = doubling(operator)
        self.lane = operator

    def update(self, data):
        whole = len(data) - len(data) % self.WIDTH
        if whole:
            self.update_lanes(np.frombuffer(data, np.uint8, whole).copy())
        for byte in data[whole:]:
            self.state = self.table[(self.state ^ byte) & 255] ^ (self.state >> 8)

    def update_lanes(self, data):
        data[:4] ^= np.frombuffer(np.array(self.state, "<u4").tobytes(), np.uint8)  # the state so far, as a prefix
        lanes = data.view("<u2").reshape(-1, self.WIDTH // 2)
        count = 1 << (len(lanes) - 1).bit_length()
        lanes = np.concatenate([np.zeros((count - len(lanes), self.WIDTH // 2), "<u2"), lanes])
        states = np.zeros(count, np.uint32)
        for column in np.ascontiguousarray(lanes.T):
            states = self.pairs[(states ^ column) & 0xFFFF] ^ (states >> 16)
        operator = self.lane
        while len(states) > 1:
            states, operator = after_zeros(states[::2], operator) ^ states[1::2], doubling(operator)
        self.state = states[0]

    def digest(self):
        return int(self.state ^ np.uint32(0xFFFFFFFF)).to_bytes(4, "big")
