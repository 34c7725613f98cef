"""benchmarks/: turns, ratios, tables, what is recorded; with invented contestants and clocks. No time is asserted."""

import dataclasses
import itertools
import pkgutil

import pytest
from contestants import INVENTED, measure_invented  # lets benchmarks be imported

from benchmarks import __main__ as command
from benchmarks import cases, recorded, results, subjects
from benchmarks.cases import Outcome
from benchmarks.subjects import PEERS, QUICK, SUBJECTS, Case, Contestant, Settings, own_image_size, plan_cases
from keras_vit.evaluation.device.measuring import seconds_per_call, take_turns

CASE = Case("inference", "ViT-B/16", batch=8, image_size=224)


def measured(*values, work=1.0, over=(), unit="s"):
    return Contestant(None, work, over, unit, values)


def make_outcome(**changed):
    """A case in which timm takes twice as long as we do, and the machine could do it in half the time."""
    contestants = {
        "keras_vit": measured(1.0, 2.0, 4.0, work=10, over=("timm", "matrix product", "keras-hub")),
        "timm": measured(2.0, 4.0, 12.0, work=10, over=("matrix product",)),
        "matrix product": measured(5.0, 10.0, 20.0, work=100),
    }
    return Outcome(contestants | changed, {}, "a machine, 2 cores")


def find_ratio(lines, contestant, over):
    (line,) = [line for line in lines if (line["contestant"], line["over"]) == (contestant, over)]
    return float(line["ratio"]), float(line["ratio_best"])


def test_short_calls_are_repeated_for_a_turn_and_long_ones_are_not():
    calls = []
    ticks = iter([0.0, 0.1, 0.2, 0.3])
    assert (
        seconds_per_call(lambda: calls.append(0), clock=lambda: next(ticks)) == pytest.approx(0.1) and len(calls) == 3
    )
    ticks = iter([5.0, 7.0])
    assert seconds_per_call(lambda: calls.append(0), clock=lambda: next(ticks)) == 2 and len(calls) == 4


def test_contestants_take_turns_in_alternating_order():
    calls = []
    contestants = {name: lambda name=name: calls.append(name) or len(calls) for name in "abc"}
    taken = take_turns(contestants, rounds=3)
    assert "".join(calls) == "abccbaabc"
    assert taken == {"a": [1, 6, 7], "b": [2, 5, 8], "c": [3, 4, 9]}


@pytest.mark.parametrize(("each", "rounds"), [(1.0, 6), (100.0, 3)])
def test_no_round_begins_after_the_patience_but_three_there_are(each, rounds):
    """The clock is read at the start and before each round from the fourth on, and goes on by `each`."""
    clock = itertools.count(step=each)
    taken = take_turns({"a": lambda: 0.0}, rounds=20, patience=3.5, clock=lambda: next(clock))
    assert len(taken["a"]) == rounds


def test_a_ratio_is_of_rates_in_the_same_round():
    lines = results.make_lines(CASE, make_outcome())
    assert find_ratio(lines, "keras_vit", "timm") == (2.0, 2.0)  # of 2, 2, 3
    assert find_ratio(lines, "keras_vit", "matrix product") == (0.5, 0.5)  # 10 in 1 second, 100 in 5
    assert find_ratio(lines, "timm", "matrix product") == (0.25, 0.25)
    assert "keras-hub" not in {line["over"] for line in lines}  # it did not take part
    (ceiling,) = [line for line in lines if line["contestant"] == "matrix product"]
    assert (ceiling["over"], ceiling["ratio"], float(ceiling["rate"])) == ("", "", 10)


def test_without_any_peer_there_are_times_and_no_ratios():
    outcome = Outcome({"keras_vit": measured(3.0, 1.0, over=("timm",))}, {}, "m")
    (line,) = results.make_lines(CASE, outcome)
    assert (line["over"], line["ratio"], line["median"], line["best"]) == ("", "", "2", "1")
    assert "2.00 s" in results.format_case([line]) and "of" not in results.format_case([line])


def test_less_memory_is_a_ratio_above_one():
    bytes_taken = {"keras_vit": measured(2e9, unit="bytes", over=("timm",)), "timm": measured(3e9, unit="bytes")}
    lines = results.make_lines(Case("memory", "ViT-S/16"), Outcome(bytes_taken, {}, "m"))
    assert find_ratio(lines, "keras_vit", "timm") == (1.5, 1.5)
    assert "1,907 MiB" in results.format_case(lines)


def test_a_table_keeps_other_cases_and_replaces_its_own(tmp_path):
    path, later = tmp_path / "new" / "results.csv", Case("training", "R50x1", batch=8)
    results.add_lines(path, results.make_lines(later, make_outcome()))
    results.add_lines(path, results.make_lines(CASE, make_outcome()))
    alone = Outcome({"keras_vit": measured(7.0)}, {}, "m")
    found = results.add_lines(path, results.make_lines(CASE, alone))
    assert found == results.read_lines(path)
    assert [(line["subject"], line["median"]) for line in found if line["contestant"] == "keras_vit"] == [
        ("inference", "7"),
        *[("training", "2")] * 2,
    ]
    assert results.read_lines(tmp_path / "none.csv") == []


def test_the_plot_has_a_panel_for_each_subject_and_a_dot_for_each_ratio(tmp_path):
    lines = [line for s in ("inference", "memory") for line in results.make_lines(Case(s, "R50x1"), make_outcome())]
    figure = results.plot_ratios(lines)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["inference", "memory"]
    drawn = {line.get_label(): list(line.get_xdata()) for line in figure.axes[0].lines[:2]}
    assert drawn == {"timm": [2.0], "matrix product": [0.5]}  # timm's own share is not ours
    results.save_plot(lines, tmp_path / "ratios.png")
    results.save_plot([], tmp_path / "none.png")
    assert [path.name for path in tmp_path.iterdir()] == ["ratios.png"]


def test_growth_is_drawn_as_curves_from_the_smallest():
    values = {"224 px": measured(2.0), "384 px": measured(5.0, work=3.0, over=("224 px",))}
    lines = results.make_lines(Case("growth", "ViT-S/16", "image sizes", 1, 224), Outcome(values, {}, "m"))
    (axes,) = results.plot_ratios(lines).axes
    assert axes.get_title(loc="left") == "growth, image sizes"
    assert [list(axes.lines[0].get_xdata()), list(axes.lines[0].get_ydata())] == [[224, 384], [1.0, 1.2]]
    assert {results.label(line) for line in lines} == {f"ViT-S/16, image sizes, {size} px" for size in (224, 384)}
    values = {"R50x1": measured(2.0, work=4e9), "R152x2": measured(5.0, work=3e10, over=("R50x1",))}
    (axes,) = results.plot_ratios(
        results.make_lines(Case("growth", "R50x1", "models", 1, 224), Outcome(values, {}, "m"))
    ).axes
    assert [*map(round, axes.lines[0].get_xdata())] == [4, 30]
    assert [text.get_text() for text in axes.texts] == ["R50x1", "R152x2"]


def test_a_table_has_the_models_in_order_and_the_small_before_the_large(tmp_path):
    unsorted = [Case("inference", *case) for case in (("R50x1", "", 8), ("ViT-B/16", "", 8), ("ViT-B/16", "", 1))]
    for case in unsorted:
        results.add_lines(tmp_path / "r.csv", results.make_lines(case, make_outcome()))
    found = dict.fromkeys((line["model"], line["batch"]) for line in results.read_lines(tmp_path / "r.csv"))
    assert list(found) == [("ViT-B/16", "1"), ("ViT-B/16", "8"), ("R50x1", "8")]
    table = recorded.write_table(results.read_lines(tmp_path / "r.csv"))
    assert "timm |" not in table and "2.00 of timm" in table


def test_what_was_not_measured_is_a_row_that_says_why():
    outcome = dataclasses.replace(make_outcome(), not_measured={"keras-hub": "keras_hub is not installed"})
    lines = results.make_lines(CASE, outcome)
    assert (lines[-1]["contestant"], lines[-1]["ratio"], lines[-1]["median"]) == ("keras-hub", "", "")
    assert "keras-hub       not measured: keras_hub is not installed" in results.format_case(lines)
    table = recorded.write_table(lines)
    assert "| ViT-B/16, batch 8, 224 px, keras-hub |  | not measured: keras_hub is not installed |" in table


def measure_with(monkeypatch, *others, **settings):
    monkeypatch.setattr(cases, "measure_case", measure_invented)
    return cases.measure_apart(INVENTED, Settings(rounds=3, peers=others, **settings))


def test_contestants_that_fail_or_end_their_process_stop_no_other(monkeypatch):
    outcome = measure_with(monkeypatch, "absent", "failing", "failing later", "ending")
    assert {name: own.values for name, own in outcome.measured.items()} == {"good": [1.0] * 3}
    assert outcome.not_measured == {
        "absent": "timm is not installed",
        "failing": "OSError: no such file",
        "failing later": "OSError: no such file",
        "ending": "its process ended with exit code 3",
    }


@pytest.mark.long
@pytest.mark.slow
def test_a_contestant_that_does_not_end_is_ended(monkeypatch):
    monkeypatch.setattr(cases, "GRACE", 0)
    outcome = measure_with(monkeypatch, "endless", limit=20)
    assert list(outcome.measured) == ["good"]
    assert outcome.not_measured == {"endless": "it took longer than 20 s"}


def test_a_subject_that_cannot_begin_is_a_row(monkeypatch):
    outcome = cases.measure_apart(Case("no subject"), Settings())
    assert not outcome.measured and outcome.not_measured == {"all": "KeyError: 'no subject'"}


def test_every_row_of_the_table_is_planned():
    planned = plan_cases(list(SUBJECTS), mixed="mixed_bfloat16")
    assert {case.subject for case in planned} == set(SUBJECTS) and len(planned) == len(set(planned))
    assert set(QUICK) <= set(planned)
    assert {case.precision for case in planned if case.subject == "training"} == {"float32", "mixed_bfloat16"}
    assert {case.batch for case in planned if case.subject == "inference"} == {1, 8, 32}
    for subject in SUBJECTS.values():
        assert set(subject.peers) <= set(PEERS)
        assert callable(pkgutil.resolve_name(subject.enter))


def test_what_is_asked_for_replaces_the_rows():
    (case,) = plan_cases(["inference"], ["ViT-Test/4"], [2], [64], precisions=["bfloat16"], backend="jax")
    assert case == Case("inference", "ViT-Test/4", "", 2, 64, "bfloat16", "jax")
    assert own_image_size("ViT-Test/4") == 32
    assert plan_cases(["pipeline"], kinds=["PNG"], models=["R50x1"]) == [
        Case("pipeline", kind="PNG", batch=64, image_size=224)
    ]
    assert len(plan_cases(["memory"], ["ViT-S/16"])) == 4  # of two rows


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("inferense", "Did you mean inference?"),
        ("inference --models ViT-B/61", "ViT-B/16"),
        ("inference --peers tim", "Did you mean timm?"),
        ("exports --kinds onxx", "Did you mean onnx?"),
        ("import --models R50x1", "--models does not concern import"),
        ("inference --kinds onnx", "No case"),
    ],
)
def test_a_wrong_word_is_a_sentence(line, said, capsys):
    assert command.main(line.split()) == 1
    assert said in capsys.readouterr().err


def run_invented(monkeypatch, tmp_path, outcomes, *arguments):
    """The command with outcomes that are given in place of measurements; the record and the page are in tmp_path."""
    page = tmp_path / "performance.md"
    page.write_text("before\n<!-- recorded -->\n<!-- end -->\nafter\n")
    given = iter(outcomes)
    monkeypatch.setattr(command, "measure_apart", lambda case, settings: next(given))
    monkeypatch.setattr(command, "RECORD", tmp_path / "recorded.csv")
    monkeypatch.setattr(command, "record", lambda lines: recorded.record(lines, tmp_path / "recorded.csv", page))
    asked = ["inference", "--models", "ViT-B/16", "--batch", "8", "--out", str(tmp_path / "out"), *arguments]
    return command.main(asked), page.read_text()


def test_quick_without_a_record_says_how_to_record(monkeypatch, tmp_path, capsys):
    status, _ = run_invented(monkeypatch, tmp_path, [], "--quick")
    said = capsys.readouterr().err
    assert status == 1 and "recorded yet" in said and "python -m benchmarks inference --record" in said


def test_quick_says_what_got_slower_than_recorded(monkeypatch, tmp_path, capsys):
    status, page = run_invented(monkeypatch, tmp_path, [make_outcome()], "--record")
    assert status == 0 and "2.00 of timm (best 2.00)" in page and page.startswith("before\n<!-- recorded -->\nMeasured")
    assert (tmp_path / "images" / "performance.png").exists()
    slow = measured(2.0, 4.0, 8.0, work=10, over=("timm", "matrix product"))
    capsys.readouterr()
    status, _ = run_invented(monkeypatch, tmp_path, [make_outcome(keras_vit=slow)], "--quick")
    said = capsys.readouterr().out
    assert status == 0 and "2 of 3 ratios fell by more than 10%." in said
    assert "over timm: 2.00, now 1.00 (best 2.00, now 1.00)" in said and said.count("SLOWER") == 2
    run_invented(monkeypatch, tmp_path, [make_outcome()], "--quick")
    assert "None of 3 ratios fell" in capsys.readouterr().out


def test_one_slow_round_is_no_change_and_what_differs_is_named():
    then = results.make_lines(CASE, make_outcome())
    outcome = make_outcome(keras_vit=measured(1.0, 4.0, 8.0, work=10, over=("timm",)))
    outcome = dataclasses.replace(outcome, machine="another", not_measured={"keras-hub": "why"})
    now = results.make_lines(CASE, outcome)
    changes = recorded.compare_with_recorded(now, then)
    assert len(changes) == 2 and not any(change.slower for change in changes)
    said = recorded.describe_changes(changes, now, then)
    assert "Recorded on a machine, 2 cores. This is another." in said
    assert "not measured now  inference, ViT-B/16, batch 8, 224 px, keras-hub: why" in said
    assert "times the recorded rate" not in said
    slow = [line | {"rate": float(line["rate"] or 0) / 2} for line in then]
    assert "convolutions run at 2.0 times the recorded rate here" in recorded.describe_changes(changes, now, slow)


def test_no_case_begins_when_the_minutes_are_over(monkeypatch, capsys):
    clock = itertools.count(step=50)
    monkeypatch.setattr(command.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(command, "measure_apart", lambda case, settings: make_outcome())
    planned = plan_cases(["inference"], ["R50x1"])
    kept = []
    assert command.measure_all(planned, Settings(), 1.0, kept.extend) == kept
    assert {line["batch"] for line in kept} == {"1"}
    assert "1 minutes are over. Not measured: inference, R50x1, batch 8, 224 px;" in capsys.readouterr().err


def test_peers_that_are_not_installed_are_named_and_take_part_as_rows(monkeypatch, capsys):
    monkeypatch.setattr(
        subjects.importlib.util, "find_spec", lambda name: None if name in ("timm", "torch") else "there"
    )
    given = command.parse_arguments(["inference"])
    assert command.choose_peers(given, [CASE]) == ("timm", "timm-compiled", "keras-hub", "keras.applications")
    assert capsys.readouterr().err.count("pip install torch timm") == 2
    assert command.choose_peers(command.parse_arguments(["inference", "--peers"]), [CASE]) == ()
    assert command.choose_peers(command.parse_arguments(["--quick"]), [CASE]) == ("timm",)
    assert "timm's models in PyTorch; its ONNX export in onnxruntime (not installed: pip" in command.list_tables()


def test_the_page_shows_what_is_recorded():
    page = recorded.PAGE.read_text("utf-8")
    lines = results.read_lines(recorded.RECORD)
    assert recorded.fill_in_table(page, lines) == page and "<!-- recorded -->" in page
    assert (recorded.RECORD.read_text("utf-8").partition("\n")[0]).split(",") == list(results.COLUMNS)
    for name in SUBJECTS:
        assert f"| `{name}` |" in page
