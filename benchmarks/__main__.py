"""Speed and memory of Keras ViT beside its peers, and beside what the machine itself can do.

    python -m benchmarks                                          # everything: hours
    python -m benchmarks inference --models R50x1 --batch 1       # one subject, one model
    python -m benchmarks --quick                                  # two minutes: what got slower since it was recorded
    KERAS_BACKEND=jax python -m benchmarks inference training --models ViT-B/16 --batch 128 --precision bfloat16

The contestants of a case take turns in one process, in alternating order, for several rounds. A ratio is the median
over the rounds of one's rate by the other's in the same round; "best" compares their fastest rounds, which a busy
machine disturbs less. Above 1, the contestant is faster, or takes less memory. Milliseconds of different cases or runs
mean nothing; ratios within a case do. "matrix product" and "convolution" are what the framework itself reaches on this
machine, in the same rounds: a ratio of them is the share of the machine's rate that a model has.

A contestant that is not installed, fails or takes too long has a row that says so, and the others go on.
docs/performance.md says how to read it all.
"""

import argparse
import contextlib
import dataclasses
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.cases import find_mixed_precision, measure_apart, tell
from benchmarks.recorded import RECORD, compare_with_recorded, describe_changes, record
from benchmarks.results import Line, add_lines, case_of, format_case, make_lines, read_lines, save_plot
from benchmarks.subjects import PEERS, QUICK, QUICK_PEERS, SUBJECTS, Case, Settings, find_absent, plan_cases
from keras_vit.errors import KerasVitError, describe_unknown

QUICK_MINUTES, QUICK_ROUNDS, QUICK_PATIENCE = 2.0, 5, 8.0
NOTHING_RECORDED = (
    "Nothing of what was asked for is recorded yet in benchmarks/recorded.csv, so there is nothing to compare with. "
    "On an idle machine, measure and record it: python -m benchmarks {} --record"
)


def list_tables() -> str:
    """The subjects with their kinds, and the peers."""
    lines = ["subjects:"]
    for name, subject in SUBJECTS.items():
        kinds = f" ({', '.join(subject.kinds)})" if any(subject.kinds) else ""
        lines.append(f"  {name:10} {subject.about}{kinds}")
    lines.append("peers:")
    for name, peer in PEERS.items():
        state = f"not installed: pip install {peer.install}" if find_absent(name) else "installed"
        lines.append(f"  {name:18} {peer.about} ({state})")
    return "\n".join(lines)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=list_tables(),
    )
    several = {"nargs": "+", "default": []}
    what = parser.add_argument_group("what is measured")
    what.add_argument("subjects", nargs="*", metavar="SUBJECT", help="names of subjects, below (default: all)")
    what.add_argument("--models", **several, metavar="NAME", help="variants, such as ViT-B/16 (see keras-vit list)")
    what.add_argument("--kinds", **several, metavar="KIND", help="of a subject with several: onnx, PNG, ...")
    what.add_argument("--batch", **several, type=int, metavar="N", help="images of a call")
    what.add_argument("--image-size", **several, type=int, metavar="N", help="pixels of a side")
    what.add_argument("--precision", **several, metavar="POLICY", help="float32, mixed_bfloat16, bfloat16, ...")
    what.add_argument("--peers", nargs="*", metavar="PEER", help="only these, or none (default: all; --quick: timm)")
    how = parser.add_argument_group("how")
    how.add_argument("--rounds", type=int, help="of a case, at most (default: 8)")
    how.add_argument("--remat", action="store_true", help="train with inner values computed again, timm's too")
    into = parser.add_argument_group("output")
    into.add_argument(
        "--out", type=Path, default=Path("benchmark"), help="folder of results.csv and ratios.png (%(default)s)"
    )
    into.add_argument(
        "--files", type=Path, metavar="FOLDER", help="keep exports, weights and photos, and make none twice"
    )
    kept = into.add_mutually_exclusive_group()
    kept.add_argument("--quick", action="store_true", help="compare with the recorded ratios, and say what got slower")
    kept.add_argument(
        "--record", action="store_true", help="make these ratios the recorded ones, and the page show them"
    )
    return parser.parse_args(arguments)


def check(kind: str, names: Sequence[str], known: Sequence[str]) -> None:
    """Raises KerasVitError for a name that is not known."""
    for name in names:
        if name not in known:
            raise KerasVitError(describe_unknown(kind, name, known))


def choose_peers(given: argparse.Namespace, cases: Sequence[Case]) -> tuple[str, ...]:
    """The peers that concern the cases; says which of them are not installed."""
    wanted = (QUICK_PEERS if given.quick else PEERS) if given.peers is None else given.peers
    wanted = [name for name in wanted if any(name in SUBJECTS[case.subject].peers for case in cases)]
    for name in wanted:
        if absent := find_absent(name):
            state = f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed"
            tell(f"{name} is not compared, since {state}. To compare: pip install {PEERS[name].install}")
    return tuple(wanted)


def require_some_effect(given: argparse.Namespace) -> None:
    """Raises KerasVitError for an option that concerns none of the subjects."""
    subjects = given.subjects or list(SUBJECTS)
    concerned = {option for name in subjects for option in SUBJECTS[name].options}
    for option in ("models", "batch", "image_size", "precision"):
        if getattr(given, option) and option not in concerned:
            raise KerasVitError(f"--{option.replace('_', '-')} does not concern {', '.join(subjects)}. Leave it out.")


def choose_cases(given: argparse.Namespace) -> list[Case]:
    """What is to be measured; for --quick, only what is recorded, and without more words QUICK."""
    check("subject", given.subjects, list(SUBJECTS))
    check("peer", given.peers or [], list(PEERS))
    check("kind", given.kinds, [kind for subject in SUBJECTS.values() for kind in subject.kinds if kind])
    backend = os.environ.get("KERAS_BACKEND") or "tensorflow"
    check("backend that is measured", [backend], ["tensorflow", "jax"])
    narrowed = any((given.subjects, given.models, given.kinds, given.batch, given.image_size, given.precision))
    if given.quick and not narrowed:
        cases = [dataclasses.replace(case, backend=backend) for case in QUICK]
    else:
        asked = (given.models, given.batch, given.image_size, given.kinds, given.precision)
        cases = plan_cases(given.subjects or list(SUBJECTS), *asked, backend, find_mixed_precision())
    if given.quick:
        known = {case_of(line) for line in read_lines(RECORD) if line["over"]}
        cases = [case for case in cases if tuple(map(str, dataclasses.astuple(case))) in known]
    require_some_effect(given)
    if not cases:
        subjects = " ".join(given.subjects)
        raise KerasVitError(
            NOTHING_RECORDED.format(subjects).replace("  ", " ")
            if given.quick
            else "No case is left to measure: no subject that was asked for has such a kind."
        )
    return cases


def measure_all(cases: Sequence[Case], settings: Settings, minutes: float, keep: Callable[[list[Line]], object]):
    """Measures case by case, prints each and keeps it as soon as it is there; returns the lines of all."""
    lines, start = [], time.monotonic()
    for i, case in enumerate(cases):
        if time.monotonic() - start > 60 * minutes:
            tell(f"{minutes:g} minutes are over. Not measured: {'; '.join(map(str, cases[i:]))}")
            break
        tell(f"[{i + 1}/{len(cases)}] {case}")
        found = make_lines(case, measure_apart(case, settings))
        rounds = next((line["rounds"] for line in found if line["rounds"]), "no")
        print(f"{case} ({rounds} rounds)\n{format_case(found)}", flush=True)
        lines += found
        keep(found)
    return lines


def benchmark(given: argparse.Namespace) -> None:
    """Does what the command line says."""
    cases = choose_cases(given)
    with contextlib.ExitStack() as stack:
        files = given.files or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        settings = Settings(
            rounds=given.rounds or (QUICK_ROUNDS if given.quick else Settings.rounds),
            patience=QUICK_PATIENCE if given.quick else Settings.patience,
            peers=choose_peers(given, cases),
            remat=given.remat,
            files=files,
        )
        minutes = QUICK_MINUTES if given.quick else float("inf")

        def keep(found):
            save_plot(add_lines(given.out / "results.csv", found), given.out / "ratios.png")
            if given.record:
                record(found)

        lines = measure_all(cases, settings, minutes, keep)
    if given.quick:
        recorded = [line for line in read_lines(RECORD) if case_of(line) in set(map(case_of, lines))]
        print(describe_changes(compare_with_recorded(lines, recorded), lines, recorded))
    tell(f"The table and the plot are in {given.out}.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit code: 0 done, 1 the input could not be used."""
    given = parse_arguments(arguments)
    try:
        benchmark(given)
    except KerasVitError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        tell(f"Stopped. What was measured is in {given.out}.")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
