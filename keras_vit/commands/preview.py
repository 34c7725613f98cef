"""`keras-vit preview`: a figure of augmented training images."""

from pathlib import Path
from typing import Annotated

import typer

from keras_vit.commands.parsing import complete_augmentation, complete_place, complete_recipe
from keras_vit.commands.shared import Data, import_keras, require_model, try_file
from keras_vit.data.datasets.schemes import require_dataset
from keras_vit.errors import ConfigError
from keras_vit.models.variants import VARIANTS
from keras_vit.trainers.settings import Settings


def find_preprocessing(model):
    """The preprocessing of a model given by name, run or path; the weights of a name are not fetched."""
    from keras_vit import models, zoo
    from keras_vit.training.runs.folder import model_of
    from keras_vit.zoo.names.registry import resolve

    if model in VARIANTS:
        return models.Preprocessing(VARIANTS[model].config.image_size or (224, 224))
    if model.partition(":")[0] in VARIANTS:
        return resolve(model).preprocessing
    return zoo.load(model_of(model)).preprocessing


def preview_images(
    dataset: Data,
    out: Annotated[
        Path, typer.Option(callback=try_file, help="The PNG file to write; an existing one is replaced.")
    ] = Path("preview.png"),
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
        str | None,
        typer.Option(help="The recipe that sets augmentation and size.", autocompletion=complete_recipe),
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
    import dataclasses

    from keras_vit import data
    from keras_vit.files import make_folder
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
