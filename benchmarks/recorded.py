"""The ratios that the project last recorded: what became slower since, and the page that shows them."""

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.results import KEY, Line, add_lines, describe_measure, describe_result, label, save_plot
from benchmarks.subjects import CEILINGS, PEERS, SUBJECTS

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "benchmarks" / "recorded.csv"
PAGE = ROOT / "docs" / "performance.md"
PLOT = "images/performance.png"  # beside the page
TOLERANCE = 0.1  # by which ratios differ from run to run
NOTHING = "Not measured yet."
# What the page shows, as (subject, label): a row of each kind; the record and the plot have all.
SUMMARY = {
    ("inference", "ViT-B/16, batch 8, 224 px"),
    ("inference", "R50x1, batch 8, 224 px"),
    ("training", "ViT-S/16, batch 8, 224 px"),
    ("training", "R50x1, batch 8, 224 px"),
    ("exports", "ViT-B/16, onnx, batch 1, 224 px, onnxruntime, dynamic"),
    ("loading", "ViT-B/16, time, keras_vit, .safetensors"),
    ("command", "ViT-Test/4, batch 16, 32 px, keras-vit pretrain"),
    ("pipeline", "JPEG, batch 64, 224 px, train, float32"),
    ("memory", "ViT-L/16, batch 8, 224 px"),
    ("memory", "ViT-L/16, batch 8, 224 px, keras_vit, remat"),
}


def name_line(line: Line) -> str:
    """Its subject, case and contestant."""
    return f"{line['subject']}, {label(line)}".rstrip(", ")


@dataclass(frozen=True)
class Change:
    """A ratio of today beside the recorded one: medians and best rounds, as (recorded, today)."""

    line: Line
    ratio: tuple[float, float]
    best: tuple[float, float]

    @property
    def slower(self) -> bool:
        """Whether both fell by more than TOLERANCE: a busy machine disturbs one of them at a time."""
        return all(now < (1 - TOLERANCE) * then for then, now in (self.ratio, self.best))

    @property
    def faster(self) -> bool:
        return all(now > (1 + TOLERANCE) * then for then, now in (self.ratio, self.best))

    def __str__(self) -> str:
        then, now = self.ratio
        verdict = "SLOWER" if self.slower else "faster" if self.faster else "as recorded"
        best = f"best {self.best[0]:.2f}, now {self.best[1]:.2f}"
        return f"{verdict:11}  {name_line(self.line)} over {self.line['over']}: {then:.2f}, now {now:.2f} ({best})"


def compare_with_recorded(lines: Sequence[Line], recorded: Sequence[Line]) -> list[Change]:
    """What the ratios of `lines` were, of those that are recorded; slower ones first."""
    known = {tuple(line[column] for column in KEY): line for line in recorded if line["over"]}
    changes = []
    for line in lines:
        then = known.get(tuple(line[column] for column in KEY))
        if then is not None:
            ratio, best = ((float(then[column]), float(line[column])) for column in ("ratio", "ratio_best"))
            changes.append(Change(line, ratio, best))
    return sorted(changes, key=lambda change: not change.slower)


def find_speeds(lines: Sequence[Line], recorded: Sequence[Line]) -> list[float]:
    """The rates of the machine's ceilings, divided by the recorded ones of the same cases."""
    then = {tuple(line[column] for column in KEY): line["rate"] for line in recorded if line["contestant"] in CEILINGS}
    pairs = [(line["rate"], then.get(tuple(line[column] for column in KEY))) for line in lines]
    return [float(rate) / float(before) for rate, before in pairs if before]


def describe_changes(changes: Sequence[Change], lines: Sequence[Line], recorded: Sequence[Line]) -> str:
    """The changes, one a line, and a last sentence; notes if another machine recorded them."""
    notes = [f"not measured now  {name_line(line)}: {line['not_measured']}" for line in lines if line["not_measured"]]
    then, now = ("; ".join(sorted({line["machine"] for line in part})) for part in (recorded, lines))
    if then != now:
        notes.append(f"Recorded on {then}. This is {now}.")
    speeds = find_speeds(lines, recorded)
    if speeds and not 0.8 < (speed := statistics.median(speeds)) < 1.25:
        notes.append(
            f"Products and convolutions run at {speed:.1f} times the recorded rate here, so a model's share of them "
            "says nothing. Measure an older commit on this machine too."
        )
    count = sum(change.slower for change in changes)
    verdict = f"{count or 'None'} of {len(changes)} ratios fell by more than {TOLERANCE:.0%}."
    return "\n".join([*map(str, changes), *notes, verdict])


def write_rows(lines: Sequence[Line]) -> list[str]:
    """A row of Markdown for each contestant, its median and all its ratios; none for those it is compared with."""
    rows: dict[tuple[str, str], list[str]] = {}
    for line in lines:
        if line["not_measured"] or (line["over"] and line["contestant"] not in PEERS):
            cells = label(line) or "keras_vit", describe_measure(line["median"], line["unit"])
            rows.setdefault(cells, []).append(describe_result(line))
    return [f"| {what} | {median} | {'; '.join(results)} |" for (what, median), results in rows.items()]


def write_table(lines: Sequence[Line]) -> str:
    """The Markdown of the lines, a table; NOTHING if there are none."""
    rows = []
    for name in SUBJECTS:
        rows += [f"| {name} {row}" for row in write_rows([line for line in lines if line["subject"] == name])]
    if not rows:
        return NOTHING
    machines = "; ".join(sorted({line["machine"] for line in lines}))
    table = "\n".join(["| | | median | ratios |", "|---|---|---:|---|", *rows])
    return "\n\n".join([f"Measured on: {machines}.", table, f"![All ratios]({PLOT})"])


def fill_in_table(page: str, lines: Sequence[Line]) -> str:
    """The page with the table of SUMMARY between "<!-- recorded -->" and "<!-- end -->"."""
    shown = [line for line in lines if (line["subject"], label(line)) in SUMMARY]
    text = f"<!-- recorded -->\n{write_table(shown)}\n<!-- end -->"
    return re.sub(r"<!-- recorded -->\n.*?<!-- end -->", lambda _: text, page, flags=re.DOTALL)


def record(lines: Sequence[Line], record: Path = RECORD, page: Path = PAGE) -> None:
    """Makes the lines the recorded ones of their cases, and the page show its summary."""
    found = add_lines(record, lines)
    save_plot(found, page.parent / PLOT)
    page.write_text(fill_in_table(page.read_text("utf-8"), found), "utf-8")
