"""Measurements in a file, each kept as soon as it is made, so that an interruption loses none."""

import json
import os
from pathlib import Path

from keras_vit.errors import ConfigError
from keras_vit.files import require_local

MOST_BYTES = 2**28


def as_key(value):
    """A key as it was before JSON made lists of its tuples."""
    return tuple(map(as_key, value)) if isinstance(value, list) else value


class Record(dict):
    """Measurements by key (texts, numbers, tuples): one JSON object per line, after a header that says what they are.

    Args:
        path: of the file, which is made; None keeps nothing.
        about: what was measured, such as {"device": "..."}: the file must be of the same.

    Raises:
        ConfigError: when the file is of other measurements, or cannot be read.
    """

    def __init__(self, path: str | os.PathLike | None, about: dict):
        super().__init__()
        require_local(path or "")
        self.path = path and Path(path)
        if self.path and self.path.exists():
            self.read(about)
        elif self.path:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.append(about)

    def read(self, about):
        """Takes the values of the file; the line that an interruption broke off is cut away."""
        content = self.path.read_bytes()[:MOST_BYTES]
        whole = content[: content.rfind(b"\n") + 1]
        try:
            first, *lines = map(json.loads, whole.decode().splitlines() or ["{}"])
            self.update({as_key(key): value for key, value in lines})
        except (ValueError, TypeError) as error:
            raise ConfigError(
                f"{self.path} does not hold measurements. Remove it, or choose another folder."
            ) from error
        for name, value in about.items():
            if first.get(name) != value:
                raise ConfigError(
                    f"{self.path} was measured with {name}={first.get(name)!r}. Received: {name}={value!r}. "
                    "Choose another folder, or remove that file."
                )
        if len(whole) < len(content):
            os.truncate(self.path, len(whole))

    def append(self, line):
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        if self.path:
            self.append([key, value])
