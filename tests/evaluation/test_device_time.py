"""The rounds, the search and the record of measurements, on an invented device."""

import csv
import functools
import os
import time

import numpy as np
import pytest

from keras_vit import evaluation
from keras_vit.errors import ConfigError, UnknownNameError
from keras_vit.evaluation.device import figure_12, steps
from keras_vit.evaluation.device.measuring import Record, seconds_per_call
from keras_vit.evaluation.device.process import DoesNotFit, NotMeasured, Process, run_apart


class Invented(steps.StepsProcess):
    """A device on which 100 images' worth of memory is left: a hundred images take a second."""

    room = 100

    def __init__(self, *_):
        super().__init__(None, "float32")
        self.calls = []

    def start(self):
        self.device, self.runs = "invented", 0

    def stop(self):
        pass

    def call(self, function, model, size, batch, training, *least):
        self.calls.append((model, batch))
        if batch > self.room:
            raise DoesNotFit
        return batch / 100 if function is steps.time_steps else True


@pytest.fixture
def invented(monkeypatch):
    made = []

    def make(*_):
        made.append(Invented())
        return made[-1]

    monkeypatch.setattr(figure_12, "StepsProcess", make)
    return made


def test_rounds_take_turns(invented):
    found = evaluation.measure_speed(["ViT-Ti/16", "R50x1"], [32], [1, 50], rounds=3, seconds=2)
    assert [speed.images_per_second for speed in found] == [100] * 4
    order = [("ViT-Ti/16", 1), ("ViT-Ti/16", 50), ("R50x1", 1), ("R50x1", 50)]
    assert invented[0].calls == [*order, *order[::-1], *order]


def test_compiling_is_left_out(monkeypatch):
    """A step that takes a second, and its first one, which compiles, a hundred."""
    clock, taken = [0.0], []

    def take():
        clock[0] += 1 if taken else 100
        taken.append(clock[0])

    monkeypatch.setattr(steps, "make_call", lambda *_: take)
    monkeypatch.setattr(steps, "seconds_per_call", functools.partial(seconds_per_call, clock=lambda: clock[0]))
    assert steps.time_steps("invented", 8, 1, False, 2.5) == 1 and len(taken) == 1 + 3


def test_what_does_not_fit_is_empty_and_larger_batches_are_not_tried(invented, tmp_path):
    found = evaluation.measure_speed(["R50x1"], [32], [200, 4, 300, 100], rounds=2)
    assert [(speed.batch_size, speed.images_per_second) for speed in found] == [
        (4, pytest.approx(100)),
        (100, pytest.approx(100)),
        (200, None),
        (300, None),
    ]
    assert 300 not in [batch for _, batch in invented[0].calls]
    evaluation.write_speeds(found, tmp_path / "speed.csv")
    rows = list(csv.DictReader(open(tmp_path / "speed.csv")))
    assert [row["images_per_second"] != "" for row in rows] == [True, True, False, False]


def test_an_interrupted_measurement_goes_on(invented, tmp_path):
    path = tmp_path / "new" / "measurements.jsonl"
    said = []

    def stop(text):
        said.append(text)
        if len(said) == 6:
            raise KeyboardInterrupt

    asked = dict(models=["ViT-Ti/16", "R50x1"], image_sizes=[32], batch_sizes=[1, 2], rounds=3, record=path)
    with pytest.raises(KeyboardInterrupt):
        evaluation.measure_speed(**asked, tell=stop)
    assert len(path.read_text().splitlines()) == 1 + 5
    said = []
    found = evaluation.measure_speed(**asked, tell=said.append)
    assert len(said) == 12 - 5 and all(len(speed.rounds) == 3 for speed in found)
    assert len(path.read_text().splitlines()) == 1 + 12
    evaluation.measure_speed(**asked, tell=pytest.fail)
    assert not invented[-1].calls
    with pytest.raises(ConfigError, match="was measured with step='inference'. Received: step='training'"):
        evaluation.measure_speed(**asked, training=True)


@pytest.mark.parametrize("room", [0, 1, 2, 3, 31, 32, 33, 100, 1000, 4095, 4096, 9999])
def test_the_largest_batch_is_found(room, invented, monkeypatch):
    monkeypatch.setattr(Invented, "room", room)
    found = evaluation.find_largest_batch("R50x1", 32, most=4096, memory=8 * 10**9)
    assert found.batch_size <= room
    if room >= 4096:
        assert (found.batch_size, found.too_large) == (4096, None)
    else:
        assert room < found.too_large <= max(found.batch_size + 1, found.batch_size * 17 / 16)
    assert len(invented[0].calls) < 22


def test_the_search_for_the_largest_batch_goes_on(invented, tmp_path):
    tried = []

    def stop(text):
        tried.append(text)
        if len(tried) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluation.find_largest_batch("R50x1", 32, record=tmp_path / "r", tell=stop)
    found = evaluation.find_largest_batch("R50x1", 32, record=tmp_path / "r", tell=tried.append)
    assert (found.batch_size, found.too_large) == (100, 104)
    assert len(tried) == len(set(tried)) + 1  # the one that was interrupted


def test_figure_12_shows_the_best_batches():
    speeds = [evaluation.Speed("ViT-B/16", size, batch, (size * batch,)) for size in (224, 384) for batch in (1, 8)]
    speeds.append(evaluation.Speed("R50x1", 224, 8, ()))
    (axis,) = evaluation.plot_speed(speeds).axes
    (line,) = axis.lines
    np.testing.assert_array_equal(line.get_xydata(), [(224, 224 * 8), (384, 384 * 8)])
    rows = [evaluation.LargestBatch(name, 224, batch, None) for name, batch in (("R152x2", 10), ("ViT-L/16", 30))]
    assert [line.get_ydata()[0] for line in evaluation.plot_largest_batch(rows).axes[0].lines] == [10, 30]


def test_bad_input_is_a_sentence(invented, tmp_path):
    with pytest.raises(UnknownNameError, match="There is no model 'ViT-B/17'. Did you mean ViT-B/1"):
        evaluation.measure_speed(["ViT-B/17"])
    with pytest.raises(ConfigError, match=r"batch_sizes must be whole numbers from 1, .* Received: \[0\]"):
        evaluation.measure_speed(["R50x1"], batch_sizes=[0])
    for memory in (-1, 1.5e9):
        with pytest.raises(ConfigError, match=f"memory must be positive: a whole number.* Received: memory={memory}"):
            evaluation.find_largest_batch("R50x1", 32, memory=memory)
    for notes in ("no measurement\n", "3\n", "", '{"device": "CPU"}\n[["round", "R50'):
        (tmp_path / "notes").write_text(notes)
        with pytest.raises(ConfigError, match="does not hold measurements"):
            Record(tmp_path / "notes", {})
        assert (tmp_path / "notes").read_text() == notes


def test_a_process_answers_reports_fails_and_is_begun_anew(tmp_path, monkeypatch):
    """Of functions in a module that both ends can import."""
    (tmp_path / "asked.py").write_text(ASKED)
    monkeypatch.syspath_prepend(tmp_path)
    import asked

    with Process() as process:
        heard = []
        assert process.call(asked.add, 1, 2, hear=heard.append) == 3 and heard == ["adding"]
        failures = (
            (asked.fail, "^ValueError: no"),
            (asked.refuse, r"^Install keras-vit\[x\]"),
            (asked.end, "exit code 3"),
        )
        for function, said in failures:
            with pytest.raises(NotMeasured, match=said) as error:
                process.call(function)
            assert not isinstance(error.value, DoesNotFit)
        process.start()
        with pytest.raises(DoesNotFit, match="MemoryError"):
            process.call(asked.fill)
        assert process.call(asked.add, 2, 2, hear=heard.append) == 4
        with pytest.raises(NotMeasured, match="took longer than 0.3 s"):
            process.call(time.sleep, 1000, limit=0.3)
    assert run_apart(os.getpid) != os.getpid()


ASKED = """
import os

from keras_vit.errors import MissingPackageError

def refuse():
    raise MissingPackageError("Install keras-vit[x].")

def add(a, b, report):
    print("no answer")
    report("adding")
    return a + b

def fail():
    raise ValueError("no")

def fill():
    raise MemoryError

def end():
    os._exit(3)
"""


@pytest.mark.slow
@pytest.mark.long
def test_memory_is_limited():
    """Twice the memory takes about twice the batch, and training takes more memory than inference."""
    small, large, trained = (
        evaluation.find_largest_batch("ViT-Test/4", 64, memory=memory, training=training).batch_size
        for memory, training in ((10**9, False), (2 * 10**9, False), (10**9, True))
    )
    assert 1.6 < large / small < 2.6
    assert 0 < trained < small / 2
