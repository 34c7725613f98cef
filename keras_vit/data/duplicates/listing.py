"""The list of near-duplicates that a search finds, a person looks through, and a training leaves out."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from keras_vit.data.errors import DataError
from keras_vit.files import read_json, write_whole

MOST_BYTES = 2**30


@dataclass(frozen=True)
class Pair:
    """A training example and the test example that it looks like.

    Args:
        number, name: of the training example, in its split.
        against: which of the searched splits the other is of.
        other, other_name: of the test example.
        bits: in which their hashes differ, of 256.
        mirrored: whether one is like the other's mirror image.
    """

    number: int
    name: str
    against: str
    other: int
    other_name: str
    bits: int
    mirrored: bool


@dataclass(frozen=True)
class Duplicates:
    """The near-duplicates of one split among others.

    Args:
        dataset, split, num_examples: of the examples that may be left out.
        pairs: most alike first.
    """

    dataset: str
    split: str
    num_examples: int
    pairs: tuple[Pair, ...]

    @property
    def numbers(self) -> list[int]:
        """Of the examples that are like another one, sorted, each once."""
        return sorted({pair.number for pair in self.pairs})

    def save(self, path: str | os.PathLike) -> None:
        """Writes JSON that `data.load(..., without=path)` reads; a pair that is none may be taken out of it."""
        head = {"dataset": self.dataset, "split": self.split, "num_examples": self.num_examples}
        with write_whole(path) as unfinished:
            pairs = [asdict(pair) for pair in self.pairs]
            unfinished.write_text(json.dumps({**head, "pairs": pairs}, indent=1) + "\n", "utf-8")


def read_duplicates(path: str | os.PathLike) -> Duplicates:
    """The list in a file that `Duplicates.save` wrote, perhaps with fewer pairs.

    Raises:
        DataError: when it cannot be read as one.
    """
    try:
        read = read_json(path, MOST_BYTES, follow_links=True)
        pairs = tuple(Pair(**pair) for pair in read.pop("pairs"))
        found = Duplicates(**read, pairs=pairs)
        if not all(type(number) is int and 0 <= number < found.num_examples for number in found.numbers):
            raise ValueError("an example's number is not one of the split")
        return found
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else repr(error)
        raise DataError(
            f"{path} is no list of duplicates ({why}). `keras-vit deduplicate` writes one, duplicates.json."
        ) from error


def numbers_to_leave_out(path: str | os.PathLike, dataset: str, split: str, source) -> list[int]:
    """The numbers of a source's examples that a list names.

    Raises:
        DataError: when the list is of another dataset or split, or of a folder that has changed since.
    """
    found, hint = read_duplicates(path), f"Make a new one: keras-vit deduplicate --data {dataset} --split {split}."
    if found.split != split or (found.dataset != dataset and not hasattr(source, "paths")):
        raise DataError(f"{path} is of the split {found.split} of {found.dataset}, not {split} of {dataset}. {hint}")
    if found.num_examples != source.num_examples:
        raise DataError(
            f"{path} is of {found.num_examples:,} examples; {dataset} ({split}) now has {source.num_examples:,}. {hint}"
        )
    if hasattr(source, "paths"):
        for pair in found.pairs:
            now = os.fsdecode(source.paths[pair.number].numpy())
            if Path(now).parts[-2:] != Path(pair.name).parts[-2:]:
                raise DataError(f"{path} calls example {pair.number} {pair.name}; it is {now} now. {hint}")
    return found.numbers
