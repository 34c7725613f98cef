"""`keras-vit preview`, `deduplicate` and `inspect`: draw a dataset's images, and what a model sees in them."""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import typer

from keras_vit import data, inspection, models, pages, zoo
from keras_vit.commands.parsing import complete_place
from keras_vit.commands.shared import (
    Data,
    Model,
    ToFile,
    ToFolder,
    complete_augmentation,
    complete_recipe,
    import_keras,
    require_model,
    show_text,
    skip_unreadable,
)
from keras_vit.console import Console
from keras_vit.data.datasets.schemes import describe_schemes, require_dataset
from keras_vit.errors import ConfigError, DataError, ImageError
from keras_vit.files import make_folder, write_whole
from keras_vit.images.pillow import read_image
from keras_vit.models.variants import VARIANTS
from keras_vit.trainers.plan import require_outside_dataset
from keras_vit.trainers.provenance import name_model, read_dataset
from keras_vit.trainers.settings import Settings
from keras_vit.training.runs.run_folder import model_of
from keras_vit.zoo.names import registry

LIST, PAGE = "duplicates.json", "index.html"
MOST_SHOWN = 300  # pairs on the page of near-duplicates
MOST = 128  # images, as many as the paper averages attention distances over (Figure 11)


def find_preprocessing(model):
    """The preprocessing of a model given by name, run or path; the weights of a name are not fetched."""
    if model in VARIANTS:
        return models.Preprocessing(VARIANTS[model].config.image_size or (224, 224))
    variant, _, tag = model.partition(":")
    if variant in VARIANTS:
        return registry.checkpoint_of_tag(variant, tag).preprocessing
    return zoo.load(model_of(model)).preprocessing


def preview_images(
    dataset: Data,
    out: Annotated[Path, ToFile(help="The PNG file to write; an existing one is replaced.")] = Path("preview.png"),
    augmentation: Annotated[
        str | None,
        typer.Option(
            help="none, inception, bit, light1, medium2, strong1 and the like; by default finetune's.",
            autocompletion=complete_augmentation,
        ),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            help="The model to be trained; it decides recipe and image size. Also as an argument.",
            autocompletion=complete_place,
        ),
    ] = "ViT-B/16",
    recipe: Annotated[
        str | None, typer.Option(help="The recipe that sets augmentation and size.", autocompletion=complete_recipe)
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(min=1, help="Height and width of the model's input in pixels; by default finetune's.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Images, chosen at random.")] = 6,
    versions: Annotated[int, typer.Option(min=1, help="Versions of each image.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the choice and of the augmentation.")] = 0,
) -> None:
    """Draws images as the model will see them in training: some images beside augmented versions, with their labels.

    The training pipeline itself makes the versions. The title of a mixed image (mixup, cutmix) states its share of each
    class.

    Example: keras-vit preview --data folder:photos --augmentation strong1 --out preview.png
    """
    if out.suffix.lower() != ".png":
        raise ConfigError(f"A preview is a PNG file. Received: {out}. Choose a path that ends in .png.")
    settings = Settings(dataset=dataset, model=model, recipe=recipe, augmentation=augmentation, image_size=image_size)
    require_dataset(dataset)
    if model not in VARIANTS:
        require_model(model)
    import_keras()
    from keras_vit.trainers.plan import augmentation_for, recipe_for

    examples = data.load(dataset, "train")
    chosen = recipe_for(settings, examples)
    preprocessing = find_preprocessing(model)
    if chosen.image_size is not None:
        size = (chosen.image_size, chosen.image_size)
        preprocessing = dataclasses.replace(preprocessing, image_size=size)
    with data.data_errors(), make_folder(out.absolute().parent):
        data.draw_preview(
            examples, out, preprocessing, augmentation_for(settings, chosen, examples), count, versions, seed
        )
    print(out)


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
        other = pages.draw_thumbnail(next(right[pair.against]), pair.other_name)
        bits = f"{pair.bits}{', mirrored' if pair.mirrored else ''}"
        rows.append((pages.draw_thumbnail(image, pair.name), other, bits))
    head = f"{len(found.numbers):,} of {train.num_examples:,} training images are in {len(found.pairs):,} pairs."
    rest = f" The {MOST_SHOWN} most alike are shown." if len(found.pairs) > MOST_SHOWN else ""
    title = f"Near-duplicates of {train.name} ({train.split})"
    return pages.fill_page(title, f"<p>{head}{rest}</p>{pages.tabulate(rows)}")


def deduplicate(
    dataset: Annotated[str, typer.Option("--data", help=describe_schemes())],
    split: Annotated[str, typer.Option(help="The images to train on: train or train+validation.")] = "train",
    against: Annotated[
        list[str] | None,
        typer.Option(help="A dataset to test on; repeat the option for more. By default --data."),
    ] = None,
    against_split: Annotated[str, typer.Option(help="The split of these datasets.")] = "test",
    most_bits: Annotated[
        int, typer.Option(min=0, max=127, help="How many of 256 bits may differ between duplicates' hashes.")
    ] = 48,
    out: Annotated[Path, ToFolder(help=f"A folder for {LIST} and {PAGE}; existing ones are replaced.")] = Path(
        "duplicates"
    ),
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
        require_outside_dataset(out, name)
    import_keras()
    train = data.load(dataset, split)
    try:
        tests = [data.load(name, against_split) for name in others]
    except DataError as error:
        raise DataError(
            f"{error} Here --against-split chooses it; train+validation has all images of a folder without splits."
        ) from error
    with show_text("Reading images") as tell:
        found = data.find_duplicates(
            train, tests, most_bits, lambda name, count: tell(f"{name}: {count:,} images read")
        )
    out.mkdir(parents=True, exist_ok=True)
    found.save(out / LIST)
    page = draw_pairs(found, train, tests)
    with write_whole(out / PAGE) as unfinished:
        unfinished.write_text(page, "utf-8")
    console = Console()
    console.print(
        f"{len(found.numbers):,} of {train.num_examples:,} images are near-duplicates, in {len(found.pairs):,} pairs."
    )
    console.print(f"Look at {out / PAGE}; --without {out / LIST} trains without them.")


def read_some(dataset, split, channels):
    """{name: image} of at most 128 examples of a split, always the same ones."""
    import tensorflow as tf

    count, found = min(MOST, data.load(dataset, split).num_examples), {}
    some = data.load(dataset, split, examples=count)
    for number in range(count):
        try:
            (found[f"{split} {number}"],) = data.read_images(some, [number], channels)
        except (ImageError, tf.errors.OpError):
            print(f"keras-vit: an image of {dataset} ({split}) cannot be read, and is left out.", file=sys.stderr)
    return found


def inspect_model(
    model: Model,
    more: Annotated[list[str] | None, typer.Argument(metavar="IMAGE...", help="The same as --images.")] = None,
    images: Annotated[list[str] | None, typer.Option(help="Images to look at; the paper averages over 128.")] = None,
    dataset: Annotated[
        str | None, typer.Option("--data", help=f"{MOST} images of a dataset, chosen at random. {describe_schemes()}")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="The split of --data; by default train, and of a run's own data validation.")
    ] = None,
    out: Annotated[Path, ToFolder(help="The folder for the page, index.html; an existing one is replaced.")] = Path(
        "report"
    ),
) -> None:
    """Writes one HTML page about a model: filters, position embeddings, attention, features or class activation.

    Without any, the page shows a run's held-out images. The page needs no other file and no network. An image that
    cannot be read is named on standard error and left out; the exit code is then 1.

    Example: keras-vit inspect ViT-B/16 --images cat.jpg dog.jpg --data folder:photos --out report
    """
    paths = [*(images or []), *(more or [])]
    path_of_model = require_model(model)
    if not paths and not dataset:
        dataset, split = read_dataset(path_of_model), split or "validation"
    if not paths and not dataset:
        raise ConfigError(
            "There is no image to look at. Name some: keras-vit inspect MODEL --images cat.jpg dog.jpg, or a dataset: "
            "--data folder:photos."
        )
    if dataset:
        require_dataset(dataset)
        require_outside_dataset(out, dataset)
    elif split:
        raise ConfigError("--split is of --data. Name a dataset, or leave --split out.")
    import_keras()
    loaded = zoo.load(path_of_model)
    readable = read_some(dataset, split or "train", loaded.config.num_channels) if dataset else {}
    skip, unreadable = skip_unreadable()
    for path in paths:
        try:
            readable[path] = read_image(path, loaded.config.num_channels)
        except ImageError as error:
            skip(path, error)
    if not readable:
        raise ConfigError("None of the images could be read.")
    names = [Path(path).name for path in readable]
    name = name_model(path_of_model, loaded.config).get("name", loaded.name)
    title = f"{name}: {len(names):,} image{'s' * (len(names) > 1)}"
    if dataset and not paths:
        title += f" of {Path(dataset.partition(':')[2] or dataset).name} ({split or 'train'})"
    inspection.report(loaded, list(readable.values()), out / PAGE, names, title=title)
    print(out / PAGE)
    if unreadable:
        raise typer.Exit(1)
