"""What one sees while a model trains, in a pipe and in a terminal of 80 and 60 columns."""

import io

import pytest

from keras_vit.commands import progress
from keras_vit.commands.progress import FitProgress
from keras_vit.console import Console

EPOCHS = [(1.3, 0.5, 1.2, 0.4), (1.0, 0.6, 1.1, 0.7), (0.8, 0.7, 1.0, 0.7), (0.5, 0.9, 1.3, 0.6)]
NAMES = ("loss", "accuracy", "val_loss", "val_accuracy")


@pytest.fixture
def watched(monkeypatch):
    """Function of (columns, whether to a terminal) to what is printed of 4 epochs of 5 steps: the first step takes a
    minute, any other a second, and a validation 20 seconds.
    """

    def watch(width, terminal):
        now, out = [0.0], io.StringIO()
        monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
        monkeypatch.setattr(
            progress, "Console", lambda: Console(file=out, width=width, force_terminal=terminal, color_system=None)
        )
        bar = FitProgress(total=20, epochs=4, batch_size=32)
        bar.on_train_begin()
        for epoch, values in enumerate(EPOCHS):
            bar.on_epoch_begin(epoch)
            for batch in range(5):
                now[0] += 60 if bar.step == 0 else 1
                bar.on_train_batch_end(batch, {"loss": 1.0})
            bar.on_test_begin()
            now[0] += 20
            bar.on_epoch_end(epoch, dict(zip(NAMES, values, strict=True)))
        bar.on_train_end()
        return out.getvalue()

    return watch


def test_a_line_per_epoch(watched):
    said = watched(80, False).splitlines()
    assert said[0] == "Compiling the first step." and max(map(len, said)) <= 80 and len(said) == 6
    assert said[1].split() == ["epoch", *NAMES, "best", "images/s", "left"]
    rows = [line.split() for line in said[2:]]
    assert [row[0] for row in rows] == ["1/4", "2/4", "3/4", "4/4"]
    # Equal accuracies are told apart by the loss.
    assert [" ".join(row[5:7]) for row in rows] == ["0.400 *", "0.700 *", "0.700 *", "0.700 @3"]
    # Batches of 32 in all the seconds since the first step: 4 in 24, 9 in 49, 14 in 74, 19 in 99.
    assert [row[7] for row in rows] == ["5", "6", "6", "6"]
    # After 9 steps and 2 validations, 49 seconds from the first step on, 10 steps are left.
    assert rows[1][8] == "0:00:54" and rows[3][8] == "0:00:00"


def test_narrow_lines_leave_out_what_they_have_no_room_for(watched):
    said = watched(60, False).splitlines()
    assert max(map(len, said)) <= 60 and said[1].split() == ["epoch", *NAMES, "best"]


@pytest.mark.parametrize("width", [80, 60])
def test_a_terminal_sees_the_lines_and_a_bar(watched, width):
    said = watched(width, True)
    assert "compiling" in said and "validation" in said and "epoch 2/4" in said and "loss 1.000" in said
    for epoch in range(1, 5):
        assert f"    {epoch}/4" in said
