"""results.json of what trains several models: what was asked, and what has been found so far."""

import json
from pathlib import Path

from keras_vit.errors import ConfigError
from keras_vit.files import read_record, write_whole
from keras_vit.training.errors import RunError
from keras_vit.training.runs.folder import require_written

RESULTS = "results.json"


class ResultsFile:
    """results.json: what was asked, and what has been found so far, each part as it comes.

    Args:
        folder: that the file is in.
        asked: what must be the same for the results to be of one question, of types that JSON has.
        resume: whether results that are there are continued.

    Raises:
        RunError: when the folder has results and `resume` is False, or they are damaged.
        ConfigError: when they are of another question.
    """

    def __init__(self, folder, asked, resume):
        self.path = Path(folder) / RESULTS
        self.facts = {**json.loads(json.dumps(asked)), "found": {}}
        if not self.path.exists():
            return
        if not resume:
            raise RunError(f"{folder} already has results. Resume them, or choose another folder.")
        fields = {**dict.fromkeys(self.facts, object), "found": dict}
        advice = "Choose another folder."
        before = read_record(self.path, fields, what="a record of such results", error=RunError, advice=advice)
        known = {name: before[name] for name in self.facts}
        for name, value in self.facts.items():
            if name != "found" and known[name] != value:
                raise ConfigError(describe_difference(folder, name, known[name], value))
        self.facts = known

    def find(self, part):
        return self.facts["found"].get(part)

    def add(self, **parts):
        self.facts["found"] |= parts
        self.write()

    def write(self, **more):
        with require_written(self.path.parent), write_whole(self.path) as path:
            path.write_text(json.dumps({**self.facts, **more}, indent=1) + "\n", "utf-8")


def describe_difference(folder, name, before, now):
    if isinstance(before, dict) and isinstance(now, dict):
        name = next(key for key in (*now, *before) if before.get(key) != now.get(key))
        before, now = before.get(name), now.get(name)
    return (
        f"The results in {folder} were begun with {name}={before!r}. Received: {name}={now!r}. Go on as they were "
        "begun, or choose another folder."
    )
