"""What is trained from Python is compared with what the command line trains."""

from tests.commands.conftest import keras_vit  # noqa: F401, a fixture
