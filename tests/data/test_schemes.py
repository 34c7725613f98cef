"""The rows that say how a dataset is named."""

import os
import pkgutil
import subprocess
import sys

import pytest
from PIL import Image
from typer.testing import CliRunner

from keras_vit import cli, data
from keras_vit.data.datasets import schemes


def test_looking_at_the_rows_imports_no_tensorflow():
    code = (
        "import sys; from keras_vit.data.datasets import schemes; schemes.describe_schemes(); "
        "schemes.find_scheme('tfds:mnist'); print({'tensorflow', 'keras', 'sklearn'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr


@pytest.mark.parametrize("scheme", schemes.DATASETS.values(), ids=schemes.DATASETS)
def test_every_row_names_functions_and_an_augmentation(scheme):
    assert callable(pkgutil.resolve_name(scheme.opens))
    assert scheme.would_read is None or callable(pkgutil.resolve_name(scheme.would_read))
    assert scheme.augmentation in data.AUGMENTATIONS
    assert schemes.find_scheme(scheme.written)[0] is scheme


def test_a_name_is_its_scheme_and_what_follows_the_colon():
    found = {name: schemes.find_scheme(name)[1] for name in ("folder:a:b", "tfds:cifar10:3.*", "digits", "vtab/dtd")}
    assert found == {"folder:a:b": "a:b", "tfds:cifar10:3.*": "cifar10:3.*", "digits": "digits", "vtab/dtd": "vtab/dtd"}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("folder", "'folder' lacks its PATH. Expected folder:PATH, "),
        ("fashion_mnist:", "'fashion_mnist:' lacks its FOLDER. Expected fashion_mnist:FOLDER, "),
        ("digits:8", "There is no dataset 'digits:8'. Did you mean digits"),
        ("cifar10:3.*", "There is no dataset 'cifar10:3.*'. Did you mean cifar10"),
    ],
)
def test_names_that_no_row_has(name, sentence):
    with pytest.raises(data.DataError) as caught:
        data.load(name)
    assert str(caught.value).startswith(sentence)


def test_help_names_every_scheme():
    said = "".join(CliRunner().invoke(cli.app, ["finetune", "--help"], env={"COLUMNS": "300"}).output.split())
    for scheme in schemes.SCHEMES.values():
        assert scheme.written in said


def test_only_files_in_a_folder_of_classes_become_examples(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
    assert schemes.would_read(f"folder:{tmp_path}", tmp_path / "run")
    assert not schemes.would_read(f"fashion_mnist:{tmp_path}", tmp_path / "run")
    assert not schemes.would_read("digits", tmp_path / "run")


def test_a_run_finds_the_images_beside_a_csv_file_that_is_a_link(tmp_path):
    """As in a cache of Hugging Face or DVC, which keep the file itself elsewhere."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "3f7a").write_text("path,label\na.png,cat\nb.png,dog\n")
    (tmp_path / "photos").mkdir()
    for name in ("a.png", "b.png"):
        Image.new("RGB", (8, 8)).save(tmp_path / "photos" / name)
    os.symlink("../store/3f7a", tmp_path / "photos" / "labels.csv")
    located = schemes.locate_dataset(f"csv:{tmp_path}/store/../photos/labels.csv")
    assert located == f"csv:{os.path.realpath(tmp_path)}/photos/labels.csv"
    assert data.load(located, "train+validation").num_examples == 2
