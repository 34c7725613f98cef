"""What makes a training impossible, found before TensorFlow is imported and anything is written. Imports no Keras."""

from pathlib import Path

from keras_vit.commands.training.choices import choose_checkpoint
from keras_vit.commands.training.settings import Settings
from keras_vit.data.datasets.schemes import would_read
from keras_vit.errors import ConfigError
from keras_vit.models.config import variant
from keras_vit.training.runs.folder import RunFolder, model_of
from keras_vit.zoo.names import registry


def require_outside_dataset(out, dataset):
    """Refuses a run's folder that would be a class, with the run's own images, when the data are read again."""
    if would_read(dataset, out):
        raise ConfigError(
            f"The run's folder {out} lies among the class folders of {dataset}, and would be read as one. "
            "Choose a folder outside of it."
        )


def require_possible(settings: Settings, out: Path, resume: bool) -> None:
    """Refuses a dataset, a folder or a model with which no run can begin, or with `resume` go on.

    Raises:
        KerasVitError: for a folder of images or a model that there is not, or a run's folder that cannot be used.
    """
    require_outside_dataset(out, settings.dataset)
    RunFolder(out).check(resume)
    model = model_of(settings.model)
    if settings.pretrain:
        variant(str(model).partition(":")[0])
    else:
        registry.resolve(choose_checkpoint(model))
