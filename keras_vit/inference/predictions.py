"""`Prediction`, the result for an image, and predictions as CSV or JSON."""

import csv
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from keras_vit.errors import printable

FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # that begin a formula, also in full width


@dataclass(frozen=True, repr=False)
class Prediction:
    """The most likely classes of an image, in this order; iterating gives pairs (name, probability).

    Args:
        names: names of the classes; their numbers if the model has no names.
        probabilities: probabilities of these classes, each in [0, 1].
        image: the path that was given; None for other images.

    >>> prediction = Prediction(("cat", "dog"), (0.9, 0.1), "a.jpg")
    >>> prediction
    Prediction(a.jpg: cat 90.0%, dog 10.0%)
    >>> prediction.name, dict(prediction)
    ('cat', {'cat': 0.9, 'dog': 0.1})
    """

    names: tuple[str | int, ...]
    probabilities: tuple[float, ...]
    image: str | None = None

    @property
    def name(self) -> str | int:
        """The most likely class."""
        return self.names[0]

    @property
    def probability(self) -> float:
        """The probability of the most likely class."""
        return self.probabilities[0]

    def __iter__(self) -> Iterator[tuple[str | int, float]]:
        return iter(zip(self.names, self.probabilities, strict=True))

    def __len__(self) -> int:
        return len(self.names)

    def __str__(self) -> str:
        classes = ", ".join(f"{printable(name)} {share:.1%}" for name, share in self)
        return classes if self.image is None else f"{printable(self.image)}: {classes}"

    def __repr__(self) -> str:
        return f"Prediction({self})"

    def as_dict(self) -> dict[str, Any]:
        """The fields as types of JSON, with probabilities to six digits."""
        classes = [{"class": name, "probability": round(share, 6)} for name, share in self]
        return {"image": self.image, "classes": classes}


def as_cell(name):
    """A name as a cell of CSV: in one line, without control characters, with an apostrophe before a formula."""
    text = printable("" if name is None else name)
    return f"'{text}" if text.startswith(FORMULA) else text


def write_csv(predictions: Iterable[Prediction], file: IO[str]) -> None:
    """Writes a header and a line for each prediction: image, class_1, probability_1, class_2, ...

    In names, control characters are escaped, and a name that a spreadsheet would read as a formula gets an apostrophe
    (OWASP, CSV Injection). JSON has the names unchanged.
    """
    writer = csv.writer(file, lineterminator="\n")
    for number, prediction in enumerate(predictions):
        if not number:
            places = range(1, len(prediction) + 1)
            writer.writerow(["image", *(f"{what}_{i}" for i in places for what in ("class", "probability"))])
        cells = (cell for name, p in prediction for cell in (as_cell(name), f"{p:.6f}"))
        writer.writerow([as_cell(prediction.image), *cells])


def write_lines(predictions: Iterable[Prediction], file: IO[str]) -> None:
    """Writes a line of JSON for each, as `Prediction.as_dict`."""
    for prediction in predictions:
        file.write(json.dumps(prediction.as_dict()) + "\n")


def write_list(predictions: Iterable[Prediction], file: IO[str]) -> None:
    """Writes one JSON list, with a line for each prediction."""
    before = "[\n"
    for prediction in predictions:
        file.write(before + json.dumps(prediction.as_dict()))
        before = ",\n"
    file.write("\n]\n" if before == ",\n" else "[]\n")


WRITERS = {".csv": write_csv, ".json": write_list, ".jsonl": write_lines}
