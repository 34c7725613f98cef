"""`keras-vit embed` and `keras-vit near`: a file of vectors from images, and the images nearest to one."""

import sys
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from keras_vit.commands.parsing import complete_place
from keras_vit.commands.predict import require_images
from keras_vit.commands.shared import (
    AskedModel,
    BatchSize,
    Like,
    ToFile,
    import_keras,
    require_model,
    show_count,
    skip_unreadable,
)
from keras_vit.console import say
from keras_vit.errors import ConfigError, ImageError, describe_unknown
from keras_vit.extras import require
from keras_vit.files import make_folder, write_whole


def embed_images(
    images: Annotated[
        list[str], typer.Argument(help="Folders of images, patterns in quotes such as `'photos/**/*.jpg'`, or files.")
    ],
    model: AskedModel,
    out: Annotated[Path, ToFile(help="The file, .npz or .parquet; a file of the same model is updated.")],
    vector: Annotated[
        str | None,
        typer.Option(
            help="output (the model's own), features (the input of its head), token (the class token), gap (the mean "
            "of the patches) or token+gap. By default output, or features of a classifier."
        ),
    ] = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Divide each vector by its length.")] = False,
    batch_size: BatchSize = 32,
    like: Like = None,
) -> None:
    """Writes a vector for each image, with its path, its folder as a label, and the digest of the file.

    After a kill, the same command continues where it stopped. In an existing file of the same model the vectors of
    unchanged images are kept. An image that cannot be read is named on standard error, and the exit code is then 1.

    Example: keras-vit embed photos --model ViT-B/14:dinov2 --out vectors.npz
    """
    from keras_vit.inference.vector_files import require_format
    from keras_vit.models.config import Vector

    require_format(out)
    if vector and vector not in get_args(Vector):
        raise ConfigError(describe_unknown("vector", vector, get_args(Vector)))
    require_images(images)
    require_model(model)
    import_keras()
    from keras_vit import inference

    skip, unreadable = skip_unreadable()
    with show_count("images", None) as tell:
        named: Any = vector
        count = inference.embed_files(model, images, out, named, normalize, batch_size, like, skip, tell)
    missing = f" {len(unreadable):,} could not be read." if unreadable else ""
    say(f"{out}: the vectors of {count:,} images.{missing}")
    raise typer.Exit(1 if unreadable else 0)


def show_nearest(
    images: Annotated[
        list[str], typer.Argument(help="The pictures to find others for: files, folders of them or https addresses.")
    ],
    vectors: Annotated[Path, typer.Option("--in", help="A file that `keras-vit embed` wrote.")],
    out: Annotated[Path, ToFile(help="The page; an existing file is replaced.")] = Path("near.html"),
    count: Annotated[int, typer.Option(min=1, help="How many pictures to show for each.")] = 12,
    model: Annotated[
        str | None,
        typer.Option(
            help="The model of the vectors, if it cannot be found by the name in the file.",
            autocompletion=complete_place,
        ),
    ] = None,
    like: Like = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Compare all vectors of more than a million, without an index.")
    ] = False,
) -> None:
    """Finds the nearest images, and writes a page of the pictures whose vectors have the largest cosines.

    Up to a million vectors are all compared. For more, an index is made and kept beside their file, and the share that
    it finds is printed. The page needs no other file and no network. An image that cannot be read is named on standard
    error, and the exit code is then 1.

    Example: keras-vit near cat.jpg --in vectors.npz --out near.html
    """
    from keras_vit.inference.listing import list_images, state_of
    from keras_vit.inference.vector_files import read_columns
    from keras_vit.inference.vector_search import Kept, open_searchable

    require("faiss", "keras-vit near")
    require_images(images)
    state = state_of(vectors)
    columns, origin = read_columns(vectors, ("paths",))
    require_model(model or origin.model)
    import_keras()
    from keras_vit import inference
    from keras_vit.inference.embedding import digest_of_model
    from keras_vit.inference.vector_search import draw_nearest

    asked = inference.open_model(model or origin.model, like)
    if digest_of_model(asked) != origin.digest:
        raise ConfigError(
            f"{vectors} was not made by {model or origin.model} as it is now. Give the model that made it as "
            "--model, or embed the images again, to another file."
        )
    kind: Any = origin.vector
    skip, unreadable = skip_unreadable()
    found = [*inference.embed_each(asked, list_images(images), kind, skip=skip)]
    if not found:
        raise ImageError("None of the images could be read.")
    images, queries = ([*column] for column in zip(*found, strict=True))
    with show_count("vectors in the index", None) as tell:
        searched = open_searchable(vectors, exact, tell)
    if state_of(vectors) != state:
        raise ConfigError(f"{vectors} was written meanwhile. Start again.")
    if isinstance(searched, Kept):
        print(f"Approximate: {searched.describe()}; --exact compares all.", file=sys.stderr)
    page = draw_nearest(columns["paths"], origin, images, *inference.nearest(searched, queries, count))
    with make_folder(out.absolute().parent), write_whole(out) as path:
        path.write_text(page, "utf-8")
    say(str(out))
    raise typer.Exit(1 if unreadable else 0)
