"""zoo.list and zoo.info, their table, docs/models.md, and that none of them needs Keras."""

import dataclasses
import json
import pathlib
import pydoc
import subprocess
import sys

import models_page as page
import pytest
from rich.console import Console

from keras_vit import zoo
from keras_vit.models.variants import VARIANTS
from keras_vit.zoo.names import listed_models
from keras_vit.zoo.names.rows import checkpoints


def test_list():
    everything = listed_models.list()
    assert {row.variant for row in everything if row.tag is None} == set(VARIANTS)
    assert [row.name for row in everything if row.tag] == [row.name for row in checkpoints()]
    assert zoo.list is listed_models.list and zoo.info is listed_models.info
    bit = listed_models.list("R50*", pretrained=True)
    assert {row.variant for row in bit} == {"R50+ViT-B/16", "R50+ViT-L/32", "R50x1", "R50x3"}
    assert all(row.tag is None for row in listed_models.list(pretrained=False))
    assert listed_models.list("vit-b/16", pretrained=True) == listed_models.list("ViT-B/16:*")
    assert all(row.parameters <= 3e7 for row in listed_models.list(max_params=30_000_000))
    assert {row.tag for row in listed_models.list(dataset="imagenet21k")} == {
        *("augreg-i21k", "bit-m", "flexivit-baseline-i21k"),
        *(f"flexivit-i21k-{epochs}ep" for epochs in (90, 300, 1000)),
    }
    assert {row.family for row in listed_models.list(family="hybrid")} == {"hybrid"}
    assert listed_models.list("nothing") == ()


@pytest.mark.parametrize("name", ["list", "info", "load", "save"])
def test_help_shows_the_public_name(name):
    shown = pydoc.plain(pydoc.render_doc(getattr(zoo, name)))
    assert f"\n{name}(" in shown and f"keras_vit.zoo.{name}(" in shown


def test_info():
    row = listed_models.info("ViT-B/16:augreg-i21k")
    assert (row.parameters, row.gflops, row.resolution, row.licence) == (102_595_923, 35.16, 224, "Apache-2.0")
    assert row.bytes == 4 * row.parameters and "sam" in row.tags and not row.default
    assert listed_models.info("R152x1").tag is None


def test_json_and_table():
    rows = listed_models.list()
    read = json.loads(listed_models.as_json(rows))
    assert [row["name"] for row in read] == [row.name for row in rows]
    assert set(read[0]) == {field.name for field in dataclasses.fields(listed_models.ListedModel)}
    console = Console(width=80)
    with console.capture() as capture:
        console.print(listed_models.as_table(rows))
    assert all(row.name in capture.get() for row in rows)
    assert "…" not in capture.get()


def test_page_is_current():
    text = (pathlib.Path(__file__).parents[2] / "docs" / "models.md").read_text("utf-8")
    assert page.MARK in text
    assert page.update_page(text) == text, "run: python tools/models_page.py docs/models.md"


def test_listing_and_fetching_import_no_keras():
    code = (
        "import sys, keras_vit.zoo.names.listed_models as m, keras_vit.zoo.fetch.download\n"
        "m.as_table(m.list()), m.as_json(m.list()), m.info('ViT-B/16'), m.resolve('hf://a/b')\n"
        "sys.exit(', '.join({'keras', 'tensorflow', 'jax', 'torch'} & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
