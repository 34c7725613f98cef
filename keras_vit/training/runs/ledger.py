"""checkpoints/run.json: which run a folder belongs to, and what that run has written there."""

import json
import os
import re
import uuid
from pathlib import Path

from keras_vit.files import write_whole
from keras_vit.training.errors import RunError
from keras_vit.training.runs.files import partial_path, read_small_json


def is_well_formed(facts):
    if not isinstance(facts, dict) or not isinstance(facts.get("run"), str):
        return False
    files, checkpoints = facts.get("files"), facts.get("checkpoints")
    if not isinstance(files, dict) or not all(isinstance(digests, list) for digests in files.values()):
        return False
    return isinstance(checkpoints, dict) and all(re.fullmatch("[0-9]{1,18}", step) for step in checkpoints)


class Ledger:
    """What one run has written: {"run": id, "files": {name: [SHA-256, ...]}, "checkpoints": {step: complete}}.

    A file is entered before it takes its name. After a kill at any moment the run's own files are therefore known: by
    one of a file's last two digests, or by the step of a checkpoint that may not be complete yet.

    Args:
        folder: of the checkpoints.
    """

    def __init__(self, folder):
        self.path = Path(folder) / "run.json"
        self.run = None

    def read(self):
        """The ledger's content, or None where there is no ledger.

        Raises:
            RunError: when it is damaged.
        """
        try:
            if not os.path.isfile(self.path):
                return None
            facts = read_small_json(self.path)
        except (OSError, ValueError, RecursionError) as error:
            raise RunError(f"{self.path} cannot be read: {error}. Choose another folder.") from error
        if not is_well_formed(facts):
            raise RunError(f"{self.path} does not list what its run has written. Choose another folder.")
        return facts

    def begin(self):
        """Continues the run that the ledger names, or begins a new one."""
        facts = self.read()
        self.run = facts["run"] if facts else self.run or uuid.uuid4().hex

    def read_own(self):
        """What this run has written.

        Raises:
            RunError: when another run has begun since.
        """
        if self.run is None:
            self.begin()
        facts = self.read() or {"run": self.run, "files": {}, "checkpoints": {}}
        if facts["run"] != self.run:
            raise RunError(f"Another run has begun in {self.path.parent.parent}. Choose another folder for this one.")
        return facts

    def write(self, facts):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with write_whole(self.path, partial_path(self.path)) as path:
            path.write_text(json.dumps(facts, indent=1), "utf-8")

    def claim(self):
        """Enters that the folder is this run's, before anything else is written in it."""
        if self.read() is None:
            self.write(self.read_own())

    def enter(self, name, digest):
        """Enters that a file has that SHA-256 from now on, or still has the one before."""
        facts = self.read_own()
        before = [known for known in facts["files"].get(name, []) if known != digest]
        facts["files"][name] = [*before[-1:], digest]
        self.write(facts)
