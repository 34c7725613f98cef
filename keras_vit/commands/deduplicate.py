"""`keras-vit deduplicate`: finds near-duplicates between training and test images, to review and to leave out."""

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from keras_vit import data, pages
from keras_vit.commands.shared import import_keras, try_folder
from keras_vit.console import Console
from keras_vit.data.datasets.schemes import describe_schemes, require_dataset
from keras_vit.files import write_whole

LIST, PAGE = "duplicates.json", "index.html"
MOST_SHOWN = 300  # pairs on the page


def draw_pairs(found, train, against):
    """Draws the page: the images of each pair side by side, most alike first."""
    shown = found.pairs[:MOST_SHOWN]
    splits = {f"{examples.name} ({examples.split})": examples for examples in against}
    left = data.read_images(train, [pair.number for pair in shown])
    right = {
        name: iter(data.read_images(examples, [pair.other for pair in shown if pair.against == name]))
        for name, examples in splits.items()
    }
    rows = [("in the training images", "in the test images", "different bits of 256")]
    for image, pair in zip(left, shown, strict=True):
        bits = f"{pair.bits}{', mirrored' if pair.mirrored else ''}"
        rows.append(
            (
                pages.draw_thumbnail(image, pair.name),
                pages.draw_thumbnail(next(right[pair.against]), pair.other_name),
                bits,
            )
        )
    head = f"{len(found.numbers):,} of {train.num_examples:,} training images are in {len(found.pairs):,} pairs."
    rest = f" The {MOST_SHOWN} most alike are shown." if len(found.pairs) > MOST_SHOWN else ""
    title = f"Near-duplicates of {train.name} ({train.split})"
    return pages.fill_page(title, f"<p>{head}{rest}</p>{pages.tabulate(rows)}")


def deduplicate(
    dataset: Annotated[str, typer.Option("--data", help=describe_schemes())],
    split: Annotated[str, typer.Option(help="The images to train on: train or train+validation.")] = "train",
    against: Annotated[
        list[str] | None,
        typer.Option(help="A dataset to test on; repeat the option for more. By default the test split of --data."),
    ] = None,
    against_split: Annotated[str, typer.Option(help="The split of these datasets.")] = "test",
    most_bits: Annotated[
        int, typer.Option(min=0, max=127, help="How many of 256 bits may differ between duplicates' hashes.")
    ] = 48,
    out: Annotated[
        Path, typer.Option(callback=try_folder, help=f"A folder for {LIST} and {PAGE}; existing ones are replaced.")
    ] = Path("duplicates"),
) -> None:
    """Finds training images that are near-duplicates of test images, by a perceptual hash (section 4.1).

    It finds copies of another size, compression, brightness or contrast and mirror images, but no crops or rotations.
    The page shows each pair side by side. Delete false matches from duplicates.json, and train without the others:
    `keras-vit finetune ... --without duplicates/duplicates.json`.

    Example: keras-vit deduplicate --data folder:photos --against oxford_iiit_pet --out duplicates
    """
    others = against or [dataset]
    for name in {dataset, *others}:
        require_dataset(name)
    import_keras()
    train = data.load(dataset, split)
    tests = [data.load(name, against_split) for name in others]
    columns = TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("Reading images")

        def tell(name, count):
            progress.update(task, description=f"{name}: {count:,} images read")

        found = data.find_duplicates(train, tests, most_bits, tell)
    out.mkdir(parents=True, exist_ok=True)
    page = draw_pairs(found, train, tests)
    found.save(out / LIST)
    with write_whole(out / PAGE) as unfinished:
        unfinished.write_text(page, "utf-8")
    console = Console()
    console.print(
        f"{len(found.numbers):,} of {train.num_examples:,} images are near-duplicates, in {len(found.pairs):,} pairs."
    )
    console.print(f"Look at {out / PAGE}; --without {out / LIST} trains without them.")
