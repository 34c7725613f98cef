"""Whether a file is the one that was promised: checksums by the server's headers, and CRC-32C."""

import base64
import hashlib
import re

import google_crc32c

BLOCK = 1 << 22


def promises(responses):
    """Checksums that the server gave for the whole file: {"md5" | "crc32c" | "sha256": base64 text}.

    From x-goog-hash (Google), an ETag that is an MD5 (object stores only: elsewhere it may be anything), and
    X-Linked-Etag (the Hugging Face Hub, on the redirect). `responses` are the redirects and the answer.
    """
    headers, found = responses[-1].headers, {}
    for part in headers.get("x-goog-hash", "").split(","):
        name, _, value = part.strip().partition("=")
        if name in ("md5", "crc32c"):
            found[name] = value
    is_store = any(name.lower().startswith(("x-goog-", "x-amz-")) for name in headers)
    etag = re.fullmatch('"([0-9a-f]{32})"', headers.get("ETag", ""))
    if is_store and etag and not any("encryption" in name.lower() for name in headers):
        found.setdefault("md5", encoded(bytes.fromhex(etag[1])))
    for step in responses:
        linked = re.fullmatch('"?([0-9a-f]{64})"?', step.headers.get("X-Linked-Etag", ""))
        if linked:
            found["sha256"] = encoded(bytes.fromhex(linked[1]))
    return found


def encoded(digest):
    return base64.b64encode(digest).decode()


def digest_of(name):
    return google_crc32c.Checksum() if name == "crc32c" else hashlib.new(name, usedforsecurity=False)


def checksums(path, names=("sha256",)):
    """Checksums of a file by name, as base64 text, in one reading."""
    digests = {name: digest_of(name) for name in names}
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            for digest in digests.values():
                digest.update(block)
    return {name: encoded(digest.digest()) for name, digest in digests.items()}


def hexadecimal(checksum):
    return base64.b64decode(checksum).hex()
