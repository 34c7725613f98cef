"""What was measured: a CSV file with a line for each contestant and each rival that it is compared with."""

import csv
import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.cases import Outcome
from benchmarks.subjects import CEILINGS, MODELS, PEERS, SUBJECTS, Case
from keras_vit.files import write_whole

CASE = tuple(field.name for field in dataclasses.fields(Case))
KEY = (*CASE, "contestant", "over")
# ratio: the median over the rounds of the contestant's rate by that of `over`; ratio_best: that of their best rounds.
# rate: work by median, in operations, images or times a second. not_measured: why there is none of all that.
COLUMNS = (*KEY, "ratio", "ratio_best", "median", "best", "unit", "rate", "rounds", "machine", "not_measured")
Line = dict[str, str]


def make_lines(case: Case, outcome: Outcome) -> list[Line]:
    """The lines of a case; above 1, a ratio says that the contestant is faster, or takes less."""
    common = dict.fromkeys(COLUMNS, "") | {column: str(value) for column, value in dataclasses.asdict(case).items()}
    common["machine"] = outcome.machine
    lines = []
    for name, own in outcome.measured.items():
        values = own.values
        median, best = statistics.median(values), min(values)
        line = common | {
            "contestant": name,
            "median": f"{median:.6g}",
            "best": f"{best:.6g}",
            "unit": own.unit,
            "rate": f"{own.work / median:.6g}",
            "rounds": str(len(values)),
        }
        present = [over for over in own.over if over in outcome.measured]
        for over in present:
            other = outcome.measured[over]
            share = own.work / other.work
            ratio = share * statistics.median(a / b for a, b in zip(other.values, values, strict=True))
            ratio_best = share * min(other.values) / best
            lines.append(line | {"over": over, "ratio": f"{ratio:.4g}", "ratio_best": f"{ratio_best:.4g}"})
        if not present:
            lines.append(line)
    return lines + [
        common | {"contestant": name, "not_measured": reason} for name, reason in outcome.not_measured.items()
    ]


def case_of(line: Line) -> tuple[str, ...]:
    """What tells a line's case from others."""
    return tuple(line[column] for column in CASE)


def place_of(line: Line) -> tuple:
    """Where its case stands in a table: by subject, then as SUBJECTS has the models, then from small to large."""
    model = MODELS.index(line["model"]) if line["model"] in MODELS else len(MODELS)
    sizes = int(line["image_size"]), int(line["batch"])
    return list(SUBJECTS).index(line["subject"]), model, line["model"], line["kind"], *sizes, line["precision"]


def read_lines(path: Path) -> list[Line]:
    """The lines of a file; none if there is no file."""
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def add_lines(path: Path, lines: Sequence[Line]) -> list[Line]:
    """Puts lines into a file, in place of those of the same cases; returns all that it has, in the table's order."""
    cases = {case_of(line) for line in lines}
    found = [line for line in read_lines(path) if case_of(line) not in cases] + list(lines)
    found.sort(key=place_of)
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_whole(path) as unfinished, open(unfinished, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
    return found


def describe_measure(value: str, unit: str) -> str:
    """A number of a line, fit to be read; "" if nothing was measured.

    >>> describe_measure("0.0123456", "s"), describe_measure("52428800", "bytes")
    ('12.3 ms', '50 MiB')
    """
    if not value:
        return ""
    if unit == "bytes":
        return f"{float(value) / 2**20:,.0f} MiB"
    return f"{float(value):,.2f} s" if float(value) >= 1 else f"{1e3 * float(value):,.3g} ms"


def describe_result(line: Line) -> str:
    """ "2.70 of timm (best 2.65)"; where nothing is compared, the rate that matters, or why there is none."""
    if line["not_measured"]:
        return f"not measured: {line['not_measured']}"
    if line["over"]:
        return f"{float(line['ratio']):.2f} of {line['over']} (best {float(line['ratio_best']):.2f})"
    if line["contestant"] in CEILINGS:
        return f"{float(line['rate']) / 1e9:,.0f} GFLOP/s"
    return f"{float(line['rate']):,.0f} images/s" if line["subject"] == "pipeline" else ""


def format_case(lines: Sequence[Line]) -> str:
    """The lines of a case as a table to print: a contestant with its median and best, then its ratios."""
    rows, width = [], max(len(line["contestant"]) for line in lines)
    for i, line in enumerate(lines):
        name, measures = f"  {line['contestant']:{width}}", ""
        if line["median"]:
            median, best = (describe_measure(line[column], line["unit"]) for column in ("median", "best"))
            measures = f"  {median:>10}  best {best:>10}"
        if i and lines[i - 1]["contestant"] == line["contestant"]:
            name, measures = " " * len(name), " " * len(measures)
        rows.append(f"{name}{measures}  {describe_result(line)}".rstrip())
    return "\n".join(rows)


def label(line: Line) -> str:
    """What tells the dots of a subject's plot apart: its contestants', too, where the size of images matters."""
    case = Case(**{column: "" if line[column] == "0" else line[column] for column in CASE})
    if not case.batch or case.subject == "growth":  # which has sizes for contestants
        case = dataclasses.replace(case, batch=0, image_size=0)
    name = "" if line["contestant"] == "keras_vit" else line["contestant"]
    return ", ".join(filter(None, (case.details(), name)))


def draw_dots(axes, panel: Sequence[Line]):
    """The ratios of a subject: a row per contestant, a colour per what it is compared with, a dash for a ceiling."""
    rows = list(dict.fromkeys(map(label, panel)))
    rivals = dict.fromkeys(line["over"] for line in panel)
    colors = list(dict.fromkeys([*PEERS, *rivals]))  # a peer has the same one in every panel
    for over in rivals:
        found = [(float(line["ratio"]), rows.index(label(line))) for line in panel if line["over"] == over]
        marker, color = ("|", "black") if over in CEILINGS else ("o", f"C{colors.index(over)}")
        axes.plot(*zip(*found, strict=True), marker, color=color, label=over)
    axes.axvline(1, color="0.6", linewidth=1, zorder=0)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()


def find_size(line: Line) -> float:
    """The size in the contestant's name; of a model its billions of operations for an image."""
    if line["kind"] == "models":
        return float(line["rate"]) * float(line["median"]) / 1e9
    return int("".join(filter(str.isdigit, line["contestant"])))


def draw_curves(axes, panel: Sequence[Line]):
    """How the rate grows with the contestants' sizes; that of the smallest is 1."""
    for model in dict.fromkeys(line["model"] for line in panel):
        found = [line for line in panel if line["model"] == model]
        points = [(find_size(line), float(line["ratio"] or 1)) for line in found]
        axes.plot(*zip(*points, strict=True), "o-", label=model)
        for line, point in zip(found, points, strict=True):
            if line["kind"] == "models":
                axes.annotate(line["contestant"], point, (4, -10), textcoords="offset points", fontsize="small")
    axes.axhline(1, color="0.6", linewidth=1, zorder=0)
    axes.set_xscale("log")
    axes.minorticks_off()
    if line["kind"] == "models":
        axes.set_xlabel("billions of operations for an image")
    else:
        axes.set_xticks(sorted({find_size(line) for line in panel}))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_ylim(bottom=0)


def plot_ratios(lines: Iterable[Line]):
    """A figure of all ratios: a panel per subject."""
    from matplotlib.figure import Figure

    panels: dict[str, list[Line]] = {}
    for line in lines:
        grows = line["subject"] == "growth" and not line["not_measured"]
        if grows or (line["over"] and line["contestant"] not in PEERS):
            panels.setdefault(", ".join([line["subject"], line["kind"]][: 1 + grows]), []).append(line)
    heights = [10 if "growth" in title else len({*map(label, panel)}) + 2 for title, panel in panels.items()]
    figure = Figure(figsize=(11, len(panels) + 0.22 * sum(heights)), layout="constrained")
    if not panels:
        return figure
    figures = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (title, panel) in zip(figures, panels.items(), strict=True):
        if "growth" in title:
            draw_curves(axes, panel)
        else:
            draw_dots(axes, panel)
        axes.set_title(title, loc="left")
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    figure.supxlabel("times as fast (or as little memory) as what it is compared with", fontsize="medium")
    return figure


def save_plot(lines: Iterable[Line], path: Path) -> None:
    """Writes `plot_ratios` as a picture, whole or not at all; none where nothing was compared."""
    figure = plot_ratios(lines)
    if not figure.axes:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with write_whole(path) as unfinished:
        figure.savefig(unfinished, dpi=100)
