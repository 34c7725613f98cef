"""What `pretrain --objective masked-patches` does otherwise than a training by labels (Appendix B.1.2)."""

from keras_vit import data, training, zoo
from keras_vit.evaluation import draw_masked_patches
from keras_vit.models.config import variant
from keras_vit.training.masked_patches.model import require_patchwise
from keras_vit.training.runs.callbacks import is_chief

DRAWN = 8  # images in masked_patches.png


def objective_of(settings):
    """The `MaskedPatches` that the settings ask for, or None for labels.

    Raises:
        ConfigError: for a hybrid or a ResNet.
        DataError: for a rate or target that there is not.
    """
    if settings.objective != "masked-patches":
        return None
    config = variant(settings.model.partition(":")[0]).config
    require_patchwise(config)
    told = {"target": settings.patch_target, "rate": settings.corruption_rate}
    return data.MaskedPatches(config.patch_size, **{name: value for name, value in told.items() if value is not None})


def load_masked_patch_model(settings, arguments):
    """A `MaskedPatchModel` around a new encoder, made with these arguments of `zoo.load`."""
    encoder = zoo.load(settings.model, weights=None, num_classes=0, **arguments)
    objective = objective_of(settings)
    return training.MaskedPatchModel(encoder, objective.target, objective.rate)


def describe_objective(model):
    """What is corrupted and predicted, as the end of a sentence."""
    rows, columns = model.config.grid
    count = model.objective.count_corrupted(model.config.image_size)
    return f"{count} of {rows * columns} patches corrupted to predict them ({model.objective.target})"


def finish_masked_patches(run, model, recipe, shown, name, console):
    """Writes the whole model, and a picture of what it predicts of `shown`; returns the accuracy, if any.

    `name` says what it is judged by, None where nothing was held out.
    """
    found = {}
    if name is not None:
        batches = shown.evaluation(recipe.batch_size // model.microbatches, model.preprocessing)
        found = model.evaluate(batches, verbose=0, return_dict=True)
    if is_chief(model):
        with run.writing("masked_patches.keras") as path:
            model.save(path)
    inputs, targets, _ = next(iter(shown.evaluation(DRAWN, model.preprocessing)))
    predictions = model(inputs, training=False)
    if is_chief(model):
        with run.writing("masked_patches.png") as path:
            draw_masked_patches(model, inputs, targets, predictions, path)
    if "accuracy" in found:
        said = f"accuracy of the corrupted patches' colours: {found['accuracy']:.1%}"
        console.print(f"{name} {said}.", soft_wrap=True)
    elif found:
        said = f"error of the corrupted patches' pixels, squared: {found['loss']:.4f}"
        console.print(f"{name} {said}.", soft_wrap=True)
    return found.get("accuracy")
