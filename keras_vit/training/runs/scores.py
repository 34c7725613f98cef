"""scores.json: what a search has found so far, written point by point."""

import json
import shutil

from keras_vit.files import require_local, write_whole
from keras_vit.training.errors import RunError
from keras_vit.training.runs.files import read_small_json, require_written
from keras_vit.training.runs.folder import CHECKPOINTS

SCORES = "scores.json"  # {...the question, "points": their number, "scores": [{"point", "accuracy"}]}


def as_json(value):
    """`value` as JSON returns it: lists for tuples."""
    return json.loads(json.dumps(value))


def read_record(folder):
    """What SCORES of a folder says, or None where there is none.

    Raises:
        RunError: when it is damaged.
    """
    try:
        record = read_small_json(folder / SCORES)
        if not isinstance(record["points"], int) or not all(
            isinstance(entry["point"], dict) and isinstance(entry["accuracy"], float | None)
            for entry in record["scores"]
        ):
            raise ValueError("it lacks scores")
        return record
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunError(
            f"{folder / SCORES} is not the record of a search ({error}). Remove {folder}: the search then begins anew."
        ) from error


class ScoreRecord:
    """The scores of a search as they come: one that is killed goes on behind the last.

    Args:
        folder: of the search, made with the first score.
        question: what is searched, of types that JSON has: the record of another question is refused.

    Raises:
        RunError: when the folder holds the scores of another search.

    >>> record = ScoreRecord(pathlib.Path("runs/1/search"), {"points": 2})  # doctest: +SKIP
    >>> record.add({"learning_rate": 0.01}, 0.93)  # doctest: +SKIP
    """

    def __init__(self, folder, question):
        require_local(folder)
        self.folder, self.question = folder, as_json(question)
        before = read_record(folder)
        if before is not None and any(before.get(key) != value for key, value in self.question.items()):
            raise RunError(
                f"{folder} holds the scores of another search, of another recipe or grid. Choose another folder, or "
                "remove that one."
            )
        self.scores = before["scores"] if before else []

    def find(self, point):
        """The entry of a point, {"point", "accuracy"}, or None."""
        return next((entry for entry in self.scores if entry["point"] == as_json(point)), None)

    def add(self, point, accuracy):
        self.scores.append({"point": point, "accuracy": accuracy})
        with require_written(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            with write_whole(self.folder / SCORES) as path:
                path.write_text(json.dumps({**self.question, "scores": self.scores}, indent=1) + "\n", "utf-8")


def remove_run(folder):
    """Removes a run whose result is recorded; nothing that is not a run."""
    ledger = folder / CHECKPOINTS / "run.json"
    if not ledger.is_file():
        return
    for path in folder.rglob("*"):
        if path.is_file() and path != ledger:  # which goes last: what a kill leaves is still known to be a run
            path.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
