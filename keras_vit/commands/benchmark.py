"""`keras-vit benchmark`: the speed of models on this machine, and the largest batch that fits (Figure 12)."""

from pathlib import Path
from typing import Annotated, Any

import typer

from keras_vit import evaluation
from keras_vit.commands.shared import ToFolder, show_text
from keras_vit.console import Console, make_table
from keras_vit.files import write_whole
from keras_vit.models import variant
from keras_vit.trainers.settings import Precision

GIGABYTE = 10**9
RECORD = "measurements.jsonl"


def tabulate_speeds(speeds):
    """A table of the best batch size of each model and image size, with its images per second."""
    table = make_table("At the best batch size", "model", "pixels", "images/s", "slowest", "fastest", "batch")
    for speed in evaluation.best_speeds(speeds):
        rates = (f"{rate:,.4g}" for rate in (speed.images_per_second, min(speed.rounds), max(speed.rounds)))
        table.add_row(speed.model, str(speed.image_size), *rates, f"{speed.batch_size:,}")
    return table


def tabulate_largest_batches(found):
    table = make_table("Largest batch that fits", "model", "pixels", "fits", "does not fit")
    for row in found:
        too_large = f"{row.too_large:,}" if row.too_large else ""
        table.add_row(row.model, str(row.image_size), f"{row.batch_size:,}", too_large)
    return table


def save_figure(figure, path):
    with write_whole(path) as unfinished:
        figure.savefig(unfinished)


def benchmark(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL...", help="Variants of `keras-vit list`. Also as `--model`.")
    ],
    image_size: Annotated[
        list[int],
        typer.Option(
            min=1,
            help="Image size in pixels; repeat the option for more sizes. The paper's are 64, 128, 224, 384 and 512.",
        ),
    ] = [224],  # noqa: B006, typer reads it
    batch_size: Annotated[
        list[int], typer.Option(min=1, help="Images per step; repeat the option for more sizes. The fastest is shown.")
    ] = [1, 8, 64],  # noqa: B006
    largest_batch: Annotated[
        bool, typer.Option("--largest-batch", help="Also find the largest batch that fits, to within a sixteenth.")
    ] = False,
    train: Annotated[bool, typer.Option("--train", help="Measure steps of training (Adam), not inference.")] = False,
    memory: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            help="Memory limit in gigabytes; by default all of the device's, or four fifths of a CPU's free memory.",
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Measurements per model, in turns; the median is shown.")] = 5,
    precision: Annotated[Precision, typer.Option(help="What to compute in.")] = "float32",
    out: Annotated[
        Path, ToFolder(help="A folder for the tables and plots. Measurements that are already there are not repeated.")
    ] = Path("benchmark"),
) -> None:
    """Measures images per second over image and batch sizes, and the largest batch that fits (Figure 12).

    Models run with random weights in a separate process, on the first GPU, else on the CPU; compiling is not timed.
    The folder receives speed.csv and speed.png, with --largest-batch also largest_batch.csv and largest_batch.png.
    Every measurement is stored at once, so after Ctrl-C the same command continues.

    Example: keras-vit benchmark ViT-L/16 R152x2 --image-size 224 --image-size 384 --largest-batch
    """
    models = list(dict.fromkeys(variant(name).name for name in models))
    options: dict[str, Any] = {
        "training": train,
        "precision": precision,
        "memory": memory and int(memory * GIGABYTE),
        "record": out / RECORD,
    }
    console, largest = Console(), []
    with show_text("Starting") as options["tell"]:
        speeds = evaluation.measure_speed(models, image_size, batch_size, rounds=rounds, **options)
        if largest_batch:
            largest = [evaluation.find_largest_batch(name, size, **options) for size in image_size for name in models]
    console.print(tabulate_speeds(speeds))
    evaluation.write_speeds(speeds, out / "speed.csv")
    save_figure(evaluation.plot_speed(speeds), out / "speed.png")
    if largest_batch:
        console.print(tabulate_largest_batches(largest))
        evaluation.write_largest_batches(largest, out / "largest_batch.csv")
        save_figure(evaluation.plot_largest_batch(largest), out / "largest_batch.png")
    console.print(f"Tables and plots are in {out}.")
