"""What is trained from Python is compared with what the command line trains."""

import pytest

from keras_vit import zoo
from tests.commands.conftest import keras_vit  # noqa: F401, a fixture


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The file of a model that trains at once."""
    path = tmp_path_factory.mktemp("model") / "tiny.keras"
    zoo.save(zoo.load("ViT-Test/4", weights=None, image_size=8, num_layers=1, num_classes=3), path)
    return str(path)
