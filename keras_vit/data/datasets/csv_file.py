"""A CSV file with the path and the class or classes of each image; a column states the split, or a hash decides it as
in folders."""

import csv
import os
from pathlib import Path
from typing import NamedTuple

from keras_vit.console import log
from keras_vit.data.datasets.image_files import SUFFIXES, choose_examples, require_all_classes
from keras_vit.data.datasets.schemes import SPLITS, parse_splits
from keras_vit.errors import DataError, quote_some

# Names of columns, in any case.
PATHS = ("path", "image", "image_path", "img", "file", "file_name", "filename", "file_path", "filepath")
ONE_LABEL = ("label", "class", "category", "target")
LABELS = (*ONE_LABEL, "labels", "classes", "tags")
SPLIT = ("split", "set", "subset")
BETWEEN_LABELS = "|"
EXPECTED = (
    "Expected a header with a column path, and either a column label, with one class or several joined by |, or a "
    "column of 0 and 1 for each class"
)


class Row(NamedTuple):
    """An image of the file: the line it stands on, its path, its classes, its split.

    The name is the path from the file's folder, whose hash decides as in `folder:`.
    """

    line: int
    path: str
    name: str
    labels: tuple[str, ...]
    split: str | None  # None if no column states it


def find_header(file, lines):
    """(names of the columns, the lines below them); a file of two columns without a header has path and label."""
    first = lines[0][1]
    if any(cell.casefold() in PATHS for cell in first):
        folded = [cell.casefold() if cell.casefold() in (*PATHS, *SPLIT, *LABELS) else cell for cell in first]
        if len(set(folded)) < len(folded):
            raise DataError(f"{file} has two columns of one name among {quote_some(first)}.")
        return folded, lines[1:]
    if len(first) == 2 and first[0].lower().endswith(SUFFIXES):
        return ["path", "label"], lines
    raise DataError(f"{file} has the columns {quote_some(first)}. {EXPECTED}.")


def class_columns(header):
    """The columns of 0 and 1: all but path and split, if no column names classes."""
    if not set(LABELS).isdisjoint(header):
        return ()
    path, split = (next((name for name in header if name in known), None) for known in (PATHS, SPLIT))
    return tuple(name for name in header if name not in (path, split))


def read_labels(where, cells, column):
    """The classes in the column `column`; further columns are not read."""
    labels = tuple(dict.fromkeys(name.strip() for name in cells[column].split(BETWEEN_LABELS) if name.strip()))
    if not labels and column in ONE_LABEL:
        raise DataError(f"{where} has no {column}. An image without a class needs a column named labels.")
    return labels


def read_columns(where, cells):
    for name, value in cells.items():
        if value not in ("0", "1", "0.0", "1.0"):
            raise DataError(f"{where} has {value!r} in the column of the class {name!r}. Expected 0 or 1.")
    return tuple(name for name, value in cells.items() if value.startswith("1"))


def name_image(file, path):
    name = os.path.normpath(path)
    outside = os.path.isabs(name) or name.startswith(os.pardir)
    # relpath alone takes ten times as long
    return os.path.relpath(file.parent / path, file.parent) if outside else name


def make_row(file, line, cells):
    column = next(name for name in cells if name in PATHS)
    path, where = cells.pop(column).replace("\\", "/"), f"{file}, line {line},"
    if not path:
        raise DataError(f"{where} has no path.")
    split = next((cells.pop(name) for name in [*cells] if name in SPLIT), None)  # the first, as in `class_columns`
    if split is not None:
        split = next((name for name, words in SPLITS.items() if split.casefold() in words), split)
        if split not in SPLITS:
            raise DataError(f"{where} has the split {split!r}. Expected {', '.join(SPLITS)}.")
    given = [name for name in LABELS if name in cells]
    labels = read_labels(where, cells, given[0]) if given else read_columns(where, cells)
    return Row(line, path, name_image(file, path), labels, split)


def require_unique(file, rows):
    lines = {}
    for row in rows:
        if row.name in lines:
            raise DataError(
                f"{file} names {row.path} in line {lines[row.name]} and in line {row.line}. Give each image one "
                f"line; several classes are joined by {BETWEEN_LABELS}."
            )
        lines[row.name] = row.line


def read_rows(file):
    """(every row of the file, checked; the classes that have a column of their own)."""
    if not file.is_file():
        raise DataError(f"There is no CSV file {file}. {EXPECTED}.")
    try:
        with open(file, encoding="utf-8-sig", newline="") as stream:
            first = stream.readline()
            stream.seek(0)
            reader = csv.reader(stream, delimiter=max(",;\t", key=first.count), strict=True)
            lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if "".join(cells).strip()]
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not text in UTF-8. Save it as CSV UTF-8.") from error
    except (csv.Error, OSError) as error:
        raise DataError(f"{file} cannot be read as CSV: {error}.") from error
    if not lines:
        raise DataError(f"{file} is empty. {EXPECTED}.")
    header, lines = find_header(file, lines)
    wrong = [line for line, cells in lines if len(cells) != len(header)]
    if wrong:
        raise DataError(f"{file}, line {wrong[0]}, does not have {len(header)} columns, as the first line does.")
    rows = [make_row(file, line, dict(zip(header, cells, strict=True))) for line, cells in lines]
    if not rows:
        raise DataError(f"{file} has a header and no images.")
    require_unique(file, rows)
    return rows, class_columns(header)


def list_classes(file, rows, columns):
    """The names of the classes, sorted (whole numbers by size); at least two. A column of zeros is a class too."""
    names = {name for row in rows for name in row.labels}.union(columns)
    if len(names) < 2:
        has = f"one class, {min(names)!r}" if names else "no classes"
        raise DataError(f"{file} has {has}. A classifier needs at least two.")
    if len({name.casefold() for name in names}) < len(names):
        log.warning("%s has classes that differ in capitals alone, and are different classes.", file)
    if all(name.removeprefix("-").isdecimal() for name in names):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))


def choose_rows(file, rows, names, multi_label):
    """The rows of the splits, in the order of the file."""
    stated = {"train": set()}
    for row in rows:
        label = None if multi_label else row.labels[0]  # of images with several classes any may be held out
        stated.setdefault(row.split or "train", set()).add((row.name, label, row))
    return sorted(row for *_, row in choose_examples(file, names, stated, stated.get))


def require_files(file, rows):
    """Refuses rows with missing images, or with files of a kind that is not read."""
    missing = [row for row in rows if not (file.parent / row.path).is_file()]
    if missing:
        names = quote_some(row.path for row in missing)
        raise DataError(
            f"{file} names {len(missing):,} images that are not there: {names}, the first in line {missing[0].line}. "
            f"Paths are relative to {file.parent.absolute()}."
        )
    foreign = [row.path for row in rows if not row.path.lower().endswith(SUFFIXES)]
    if foreign:
        raise DataError(f"{file} names files of kinds that are not read: {quote_some(foreign)}. Save them as PNG.")


def open_split(file, split):
    """(source, class names) of a split, as `schemes` asks; docs/finetuning.md says what a file may have.

    If any image of the file has several classes, or none, each has a row of 0 and 1; else the number of its class.
    """
    from keras_vit.data.reading.sources import Files

    names = parse_splits(split, "A CSV file")
    file = Path(os.path.expanduser(file))
    rows, columns = read_rows(file)
    classes = list_classes(file, rows, columns)
    multi_label = any(len(row.labels) != 1 for row in rows)
    chosen = choose_rows(file, rows, names, multi_label)
    require_files(file, chosen)
    if "train" in names:
        require_all_classes(file, classes, {name for row in chosen for name in row.labels})
    if multi_label:
        labels = [[float(name in row.labels) for name in classes] for row in chosen]
    else:
        numbers = {name: number for number, name in enumerate(classes)}
        labels = [numbers[row.labels[0]] for row in chosen]
    return Files([file.parent / row.path for row in chosen], labels, multi_label), classes


def list_splits(file):
    """The splits that the file's column names; an empty set if it has no such column."""
    file = Path(os.path.expanduser(file))
    return {row.split for row in read_rows(file)[0]} - {None}
