"""benchmarks/: turns, ratios, tables, what is recorded; with invented contestants and clocks. No time is asserted."""

import dataclasses
import itertools
import os
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # as `python -m benchmarks` has it

from benchmarks import __main__ as command  # noqa: E402
from benchmarks import peers, processes, recorded, results, torch_models  # noqa: E402
from benchmarks.processes import Measured, Outcome, run_apart  # noqa: E402
from benchmarks.subjects import QUICK, SUBJECTS, Case, Settings, own_image_size, plan_cases  # noqa: E402
from benchmarks.timing import Contestant, take_turns  # noqa: E402

CASE = Case("inference", "ViT-B/16", batch=8, image_size=224)


def measured(*values, work=1.0, over=(), unit="s"):
    return Measured(list(values), work, over, unit)


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


def test_contestants_take_turns_in_alternating_order():
    calls = []
    contestants = {name: lambda name=name: calls.append(name) or len(calls) for name in "abc"}
    taken = take_turns(contestants, rounds=3, warm_up=1)
    assert "".join(calls) == "cbaabccbaabc"
    assert taken == {"a": [4, 9, 10], "b": [5, 8, 11], "c": [6, 7, 12]}


@pytest.mark.parametrize(("each", "rounds"), [(1.0, 6), (100.0, 3)])
def test_no_round_begins_after_the_patience_but_three_there_are(each, rounds):
    """The clock is read at the start and before each round from the fourth on, and goes on by `each`."""
    clock = itertools.count(step=each)
    taken = take_turns({"a": lambda: 0.0}, rounds=20, warm_up=0, patience=3.5, clock=lambda: next(clock))
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
    outcome = Outcome(
        {"keras_vit": measured(2e9, unit="bytes", over=("timm",)), "timm": measured(3e9, unit="bytes")}, {}, "m"
    )
    lines = results.make_lines(Case("memory", "ViT-S/16"), outcome)
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


def test_a_contestant_that_fails_is_left_out_with_its_reason():
    def fail():
        raise OSError("no such file\nand more")

    contestants, left_out = processes.prepare(
        {"a": lambda: Contestant(lambda: 1.0), "b": fail, "c": lambda: Contestant(fail)}
    )
    assert list(contestants) == ["a"] and left_out == dict.fromkeys("bc", "OSError: no such file")


def test_a_process_that_ends_leaves_a_sentence(monkeypatch):
    monkeypatch.setattr(processes, "run_apart", lambda function, *_: run_apart(os._exit, 3))
    outcome = processes.measure_apart(CASE, Settings())
    assert not outcome.measured and "BrokenProcessPool" in outcome.left_out["all"]
    assert results.make_lines(CASE, outcome) == []


def test_every_row_of_the_table_is_planned():
    cases = plan_cases(list(SUBJECTS), mixed="mixed_bfloat16")
    assert {case.subject for case in cases} == set(SUBJECTS) and len(cases) == len(set(cases))
    assert set(QUICK) <= set(cases)
    assert {case.precision for case in cases if case.subject == "training"} == {"float32", "mixed_bfloat16"}
    assert {case.batch for case in cases if case.subject == "inference"} == {1, 8, 32}
    for subject in SUBJECTS.values():
        assert set(subject.peers) <= set(peers.PEERS)
        assert callable(processes.find(subject.enter))


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


def test_one_slow_round_is_no_change_and_another_machine_is_named():
    then = results.make_lines(CASE, make_outcome())
    outcome = make_outcome(keras_vit=measured(1.0, 4.0, 8.0, work=10, over=("timm",)))
    now = results.make_lines(CASE, dataclasses.replace(outcome, machine="another"))
    changes = recorded.compare_with_recorded(now, then)
    assert len(changes) == 2 and not any(change.slower for change in changes)
    assert "Recorded on a machine, 2 cores. This is another." in recorded.describe_changes(changes, now, then)


def test_no_case_begins_when_the_minutes_are_over(monkeypatch, tmp_path, capsys):
    clock = itertools.count(step=50)
    monkeypatch.setattr(command.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(command, "measure_apart", lambda case, settings: make_outcome())
    cases = plan_cases(["inference"], ["R50x1"])
    lines = command.measure_all(cases, Settings(), 1.0, tmp_path)
    assert {line["batch"] for line in lines} == {"1"}
    assert "1 minutes are over. Not measured: inference, R50x1, batch 8, 224 px;" in capsys.readouterr().err


def test_peers_that_are_not_installed_are_named(monkeypatch, capsys):
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: None if name in ("timm", "torch") else "there")
    given = command.parse_arguments(["inference"])
    assert command.choose_peers(given, [CASE]) == ("keras-hub", "keras.applications")
    assert "pip install torch timm" in capsys.readouterr().err
    assert command.choose_peers(command.parse_arguments(["inference", "--peers"]), [CASE]) == ()
    command.list_subjects()
    assert "not installed: pip install torch timm" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "capability", "policy"),
    [
        ("avx2", None, ""),
        ("avx2 amx_bf16", None, "mixed_bfloat16"),
        ("avx2", "7.5", "mixed_float16"),
        ("", "9.0", "mixed_bfloat16"),
    ],
)
def test_mixed_precision_is_what_the_device_has(monkeypatch, flags, capability, policy):
    def ask(*_, **__):
        if capability is None:
            raise FileNotFoundError
        return types.SimpleNamespace(stdout=f"{capability}\n")

    monkeypatch.setattr(processes.subprocess, "run", ask)
    monkeypatch.setattr(processes, "read_processor", lambda: f"flags\t\t: fpu {flags}")
    assert processes.find_mixed_precision() == policy


@pytest.mark.parametrize("fits", [False, True])
def test_timm_imports_beside_a_torchvision_of_another_build(monkeypatch, tmp_path, fits):
    """An invented torch and torchvision: operators are defined only where torchvision's library does not load."""
    defined, loaded = [], []

    class Library:
        def __init__(self, namespace, kind):
            self.name = namespace, kind

        def define(self, schema):
            defined.append((*self.name, schema))

    def load_library(path):
        if not fits:
            raise OSError("undefined symbol")
        loaded.append(path)

    torch = types.SimpleNamespace(
        library=types.SimpleNamespace(Library=Library), ops=types.SimpleNamespace(load_library=load_library)
    )
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "_C.so").touch()
    (tmp_path / "torchvision" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(torch_models, "kept", [])
    torch_models.define_operators(torch)
    torch_models.define_operators(torch)
    if fits:
        assert loaded and not defined
    else:
        assert len(defined) == len(set(defined)) == 12
        assert ("torchvision", "DEF", "nms(Tensor a) -> Tensor") in defined
        assert ("torchvision", "DEF", "_roi_align_backward(Tensor a) -> Tensor") in defined
        assert not [row for row in defined if "nms_backward" in row[2]]


def test_bare_decoding_of_png_reads_the_header_and_the_box(tmp_path):
    import io

    import tensorflow as tf
    from PIL import Image

    from benchmarks.pipelines import decode_png, read_png_shape

    pixels = np.random.default_rng(0).integers(0, 256, (7, 12, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    assert read_png_shape(file.getvalue()).numpy().tolist() == [7, 12, 3]
    assert (decode_png(file.getvalue(), tf.constant([1, 2, 3, 4])).numpy() == pixels[1:4, 2:6]).all()


def test_timm_names_the_models_that_the_zoo_says():
    """The zoo reads timm's files by other tables: each of these names has as many weights there as its variant."""
    from keras_vit.models import VARIANTS

    assert set(torch_models.NAMES) <= set(VARIANTS)
    for variant, name in torch_models.NAMES.items():
        patch = variant.rpartition("/")[2] if "/" in variant else variant[1:]
        assert patch in name, (variant, name)


def test_the_page_shows_what_is_recorded():
    page = recorded.PAGE.read_text("utf-8")
    lines = recorded.read_recorded()
    assert recorded.fill_in_table(page, lines) == page and "<!-- recorded -->" in page
    assert (recorded.RECORD.read_text("utf-8").partition("\n")[0]).split(",") == list(results.COLUMNS)
    for name in SUBJECTS:
        assert f"| `{name}` |" in page


def run_command(tmp_path, line, **variables):
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *line.split(), "--out", str(tmp_path), "--files", str(tmp_path / "files")],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return results.read_lines(tmp_path / "results.csv"), done


def test_the_command_measures_and_writes(tmp_path):
    lines, done = run_command(tmp_path, "list --rounds 1")
    assert {line["contestant"] for line in lines} == {"keras-vit list", "python", "import keras"}
    assert all(float(line["median"]) > 0 for line in lines) and "keras-vit list" in done.stdout
    assert (tmp_path / "ratios.png").exists()


@pytest.mark.slow
def test_every_subject_runs_on_a_tiny_model(tmp_path):
    subjects = "inference training exports loading building growth memory pipeline"
    line = f"{subjects} --models ViT-Test/4 --batch 2 --image-size 32 --rounds 1 --peers keras.applications"
    lines, done = run_command(tmp_path, line)
    assert {line["subject"] for line in lines} == set(subjects.split())
    assert "left out" not in done.stderr
    ours = [line for line in lines if line["over"] == "matrix product"]
    assert {line["subject"] for line in ours} >= {"inference", "training"}
    assert np.isfinite([float(line["ratio"]) for line in lines if line["over"]]).all()


@pytest.mark.slow
def test_the_instrument_runs_on_jax_in_bfloat16(tmp_path):
    """What is to be measured on a GPU, small and on a processor."""
    pytest.importorskip("jax")
    line = "inference training --models ViT-Test/4 --batch 2 --rounds 1 --precision bfloat16 mixed_bfloat16 --peers"
    lines, _ = run_command(tmp_path, line, KERAS_BACKEND="jax")
    shares = [line for line in lines if (line["contestant"], line["over"]) == ("keras_vit", "matrix product")]
    assert {(line["subject"], line["precision"]) for line in shares} == {
        (subject, precision) for subject in ("inference", "training") for precision in ("bfloat16", "mixed_bfloat16")
    }
    assert {line["backend"] for line in lines} == {"jax"}
