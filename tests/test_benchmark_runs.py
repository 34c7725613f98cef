"""benchmarks/ on this machine: its adapters to libraries, and the command as a user runs it. No time is asserted."""

import os
import re
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from contestants import INVENTED  # noqa: F401  # lets benchmarks be imported

from benchmarks import __main__ as command
from benchmarks import cases, results, searches, torch_models
from benchmarks.subjects import Case, Settings
from keras_vit.inference import vector_search
from keras_vit.models import VARIANTS

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("flags", "capability", "policy"),
    [
        ("avx2", None, ""),
        ("avx2 amx_bf16", None, "mixed_bfloat16"),
        ("avx2", "7.5", "mixed_float16"),
        ("", "9.0", "mixed_bfloat16"),
    ],
)
def test_mixed_precision_is_what_the_device_has(monkeypatch, flags, capability, policy):
    def ask(*_, **__):
        if capability is None:
            raise FileNotFoundError
        return types.SimpleNamespace(stdout=f"{capability}\n")

    monkeypatch.setattr(cases.subprocess, "run", ask)
    monkeypatch.setattr(cases, "read_processor", lambda: f"flags\t\t: fpu {flags}")
    assert cases.find_mixed_precision() == policy


def test_bare_decoding_of_png_reads_the_header_and_the_box(tmp_path):
    import io

    import tensorflow as tf
    from PIL import Image

    from benchmarks.pipelines import decode_png, read_png_shape

    pixels = np.random.default_rng(0).integers(0, 256, (7, 12, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    assert read_png_shape(file.getvalue()).numpy().tolist() == [7, 12, 3]
    assert (decode_png(file.getvalue(), tf.constant([1, 2, 3, 4])).numpy() == pixels[1:4, 2:6]).all()


def test_a_search_makes_the_index_and_compares_all_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr(searches, "COUNT", 3000)
    monkeypatch.setattr(vector_search, "MOST", 1000)
    files = tmp_path / "new"
    makers = searches.enter_search(Case("search", batch=2), Settings(files=files))
    assert [path.name for path in files.iterdir()] == ["3000 vectors.npz"]
    contestants = [make() for make in makers.values()]
    assert all(contestant.measure() > 0 for contestant in contestants)
    assert (files / "3000 vectors.npz.index").exists() and set(contestants[0].over) < set(makers)


def test_timm_names_the_models_that_the_variants_are():
    """Each name says its variant's patch size, or depth and width."""
    assert set(torch_models.NAMES) <= set(VARIANTS)
    for variant, name in torch_models.NAMES.items():
        patch = variant.rpartition("/")[2] if "/" in variant else variant[1:]
        assert patch in name, (variant, name)


def test_the_page_writes_commands_that_are_understood():
    page = (ROOT / "docs" / "performance.md").read_text("utf-8")
    lines = re.findall(r"python -m benchmarks([^`#\n]*)", page)
    assert len(lines) > 5
    for line in lines:
        given = command.parse_arguments(line.split()) if "--help" not in line else None
        assert given is None or given.quick or command.choose_cases(given)


def run_command(tmp_path, line, **variables):
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *line.split(), "--out", str(tmp_path), "--files", str(tmp_path / "files")],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = results.read_lines(tmp_path / "results.csv")
    assert not [line for line in lines if line["not_measured"]], done.stdout
    assert np.isfinite([float(line["ratio"]) for line in lines if line["over"]]).all()
    return lines, done.stdout


@pytest.mark.slow
def test_the_command_measures_prints_and_writes(tmp_path):
    lines, said = run_command(tmp_path, "list --rounds 1")
    assert {line["contestant"] for line in lines} == {"keras-vit list", "python", "import keras"}
    assert all(float(line["median"]) > 0 for line in lines) and "keras-vit list" in said
    assert (tmp_path / "ratios.png").exists()


TINY = "--models ViT-Test/4 --batch 2 --image-size 32"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "count"),
    [
        (f"inference training {TINY} --precision float32", 2),
        pytest.param("exports --models ViT-Test/4 --batch 2", 3, marks=pytest.mark.long),
        pytest.param("loading building --models ViT-Test/4", 3, marks=pytest.mark.long),
        pytest.param(f"growth {TINY}", 3, marks=pytest.mark.long),
        pytest.param(f"memory {TINY}", 1, marks=pytest.mark.long),
        pytest.param("pipeline --batch 2 --image-size 32", 4, marks=pytest.mark.long),
    ],
)
def test_every_subject_runs_on_a_tiny_model(tmp_path, line, count):
    lines, said = run_command(tmp_path, f"{line} --rounds 1 --peers")
    assert said.count("(1 rounds)") == count
    if "inference" in line:
        shares = [line for line in lines if (line["contestant"], line["over"]) == ("keras_vit", "matrix product")]
        assert {line["subject"] for line in shares} == {"inference", "training"}


@pytest.mark.long
@pytest.mark.slow
def test_the_instrument_runs_on_jax_in_bfloat16(tmp_path):
    """What is to be measured on a GPU, small and on a processor."""
    pytest.importorskip("jax")
    line = "inference training --models ViT-Test/4 --batch 2 --rounds 1 --precision bfloat16 mixed_bfloat16 --peers"
    lines, _ = run_command(tmp_path, line, KERAS_BACKEND="jax")
    shares = [line for line in lines if (line["contestant"], line["over"]) == ("keras_vit", "matrix product")]
    assert {(line["subject"], line["precision"]) for line in shares} == {
        (subject, precision) for subject in ("inference", "training") for precision in ("bfloat16", "mixed_bfloat16")
    }
    assert {line["backend"] for line in lines} == {"jax"}


@pytest.mark.slow
@pytest.mark.long
def test_the_engines_take_turns_in_processes_of_their_own(tmp_path):
    pytest.importorskip("jax")
    lines, _ = run_command(tmp_path, f"engines {TINY} --rounds 1 --peers --kinds inference memory")
    assert [(line["contestant"], line["over"], line["unit"]) for line in lines] == [
        ("tensorflow", "", "s"),
        ("jax", "tensorflow", "s"),
        ("tensorflow", "", "bytes"),
        ("jax", "tensorflow", "bytes"),
    ]
