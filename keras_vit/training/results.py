"""A JSON file of what several trainings come to: what was asked, and each result as it comes."""

import json
from pathlib import Path

from keras_vit.errors import ConfigError
from keras_vit.files import read_record, require_local, write_whole
from keras_vit.training.errors import RunError
from keras_vit.training.runs.folder import require_written


def describe_difference(path, name, before, now):
    if isinstance(before, dict) and isinstance(now, dict):
        name = next(key for key in (*now, *before) if before.get(key) != now.get(key))
        before, now = before.get(name), now.get(name)
    return (
        f"The results in {path.parent} were begun with {name}={before!r}. Received: {name}={now!r}. Go on as they were "
        "begun, or choose another folder."
    )


class ResultsFile:
    """What was asked, and what has been found so far: trainings that are killed go on behind the last result.

    Args:
        path: of the file, which is made with the first result, and its folder too.
        asked: what must be the same for the results to be of one question, of types that JSON has.

    Raises:
        RunError: when the results that are there are damaged.
        ConfigError: when they are of another question.

    >>> results = ResultsFile("results.json", {"seeds": 2})
    >>> results.add(first=0.93)
    >>> ResultsFile("results.json", {"seeds": 2}).find("first")
    0.93
    """

    def __init__(self, path, asked):
        require_local(path)
        self.path = Path(path)
        self.asked = json.loads(json.dumps(asked))
        self.found = {}
        if self.path.exists():
            self.found = self.read()

    def read(self):
        fields = {**dict.fromkeys(self.asked, object), "found": dict}
        what, advice = "the record of these results", "Choose another folder, or remove that file: all begins anew."
        before = read_record(self.path, fields, what=what, error=RunError, advice=advice)
        for name, value in self.asked.items():
            if before[name] != value:
                raise ConfigError(describe_difference(self.path, name, before[name], value))
        return before["found"]

    def find(self, part):
        return self.found.get(part)

    def add(self, **parts):
        self.found |= parts
        self.write()

    def write(self, **more):
        with require_written(self.path.parent):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with write_whole(self.path) as unfinished:
                text = json.dumps({**self.asked, "found": self.found, **more}, indent=1)
                unfinished.write_text(text + "\n", "utf-8")
