"""The layout of transformers.js, opened by that library under Node."""

import base64
import json
import shutil
import subprocess
from pathlib import Path

import keras
import numpy as np
import onnx
import pytest
from shaking import shaken

from keras_vit import export, zoo
from keras_vit.errors import ExportError
from keras_vit.export.preparation import prepare
from keras_vit.export.proof.parity import KINDS
from keras_vit.export.staging import ExportFolder
from keras_vit.export.web import LAYOUT_FILES, transformers_js
from keras_vit.models import ResNet, VisionTransformer
from keras_vit.models.preprocessing import Preprocessing

TINY = {"image_size": 32, "patch_size": 8, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "mlp_dim": 64}
LABELS = ("cat", "dog", "hen", "cow", "fox", "owl")
SCRIPT = Path(__file__).parents[1] / "support" / "transformers_js.cjs"
MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)


def vit(**arguments):
    keras.utils.set_random_seed(0)
    known = {
        **TINY,
        "num_classes": 6,
        "labels": LABELS,
        "preprocessing": Preprocessing((32, 32), mean=MEAN, std=STD),
        **arguments,
    }
    if known["preprocessing"]:
        known["image_size"] = known["preprocessing"].image_size
    return shaken(VisionTransformer(**known))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    model, out = vit(), tmp_path_factory.mktemp("bundle") / "dist"
    lines = []
    export.bundle(model, out, ["onnx"], web_layout="transformers", progress=lines.append)
    assert sum(line.startswith("transformers: onnx/") for line in lines) == 2
    return model, out


def test_the_files_and_their_tensors(made):
    model, out = made
    files = sorted(path.relative_to(out).as_posix() for path in out.rglob("transformers/**/*") if path.is_file())
    assert files == sorted(
        f"transformers/{name}" for name in ("config.json", "preprocessor_config.json", *LAYOUT_FILES)
    )
    for name in LAYOUT_FILES:
        graph = onnx.load(out / "transformers" / name).graph
        (x,), (y,) = graph.input, graph.output
        assert (x.name, y.name) == ("pixel_values", "logits")
        assert [d.dim_value for d in x.type.tensor_type.shape.dim][1:] == [3, 32, 32]
        assert {x.type.tensor_type.elem_type, y.type.tensor_type.elem_type} == {onnx.TensorProto.FLOAT}
    first = onnx.load(out / "transformers/onnx/model.onnx").graph.node[0]
    assert first.op_type == "Conv" and first.input[0] == "pixel_values"  # nothing is turned around and back


def test_what_the_configurations_say(made):
    folder = made[1] / "transformers"
    config = json.loads((folder / "config.json").read_text())
    assert config["model_type"] == "vit" and config["id2label"]["3"] == "cow" and config["label2id"]["cow"] == 3
    read = json.loads((folder / "preprocessor_config.json").read_text())
    assert read["size"] == {"height": 32, "width": 32} and read["resample"] == 2 and not read["do_center_crop"]
    assert (read["image_mean"], read["image_std"], read["rescale_factor"]) == ([*MEAN], [*STD], 1 / 255)


def test_a_model_of_vectors_has_no_classes():
    config = transformers_js.describe_layout(prepare(vit(num_classes=0, labels=None)))["config.json"]
    assert config == {"architectures": ["ViTModel"], "model_type": "vit"}  # transformers' names


@pytest.mark.parametrize(
    ("preprocessing", "size", "crop", "resample"),
    [
        (Preprocessing((32, 32), crop=0.875), {"shortest_edge": 36}, True, 2),
        (Preprocessing((32, 32), crop=1.0, interpolation="bicubic"), {"shortest_edge": 32}, True, 3),
        (Preprocessing((32, 24), crop=0.5, crop_mode="squash"), {"height": 64, "width": 48}, True, 2),
        (Preprocessing((32, 24), interpolation="lanczos3"), {"height": 32, "width": 24}, False, 1),
        (Preprocessing((32, 32), interpolation="nearest"), {"height": 32, "width": 32}, False, 0),
    ],
)
def test_every_preprocessing_that_can_be_said(preprocessing, size, crop, resample):
    read = transformers_js.make_preprocessor_config(vit(preprocessing=preprocessing), 3)
    assert (read["size"], read["do_center_crop"], read["resample"]) == (size, crop, resample)
    height, width = preprocessing.image_size
    assert read.get("crop_size", {"height": height, "width": width}) == {"height": height, "width": width}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"probabilities": "sigmoid"}, "needs sigmoid"),
        ({"preprocessing": Preprocessing((32, 24), crop=0.5)}, "not square. Received: 32x24"),
        ({"num_channels": 1, "preprocessing": None}, "has 1 channels"),
    ],
)
def test_what_it_cannot_say_is_refused(arguments, sentence, tmp_path):
    with pytest.raises(ExportError, match=sentence):
        export.bundle(vit(**arguments), tmp_path / "dist", ["onnx"], web_layout="transformers")
    with pytest.raises(ExportError, match="No web_layout is called 'tfjs'. Expected: transformers"):
        export.bundle(vit(), tmp_path / "dist", ["onnx"], web_layout="tfjs")
    assert not list(tmp_path.iterdir())


def test_the_bundle_lists_it_and_the_next_export_removes_it(made, tmp_path):
    model, out = made
    dist = Path(shutil.copytree(out, tmp_path / "dist"))
    export.verify(dist)
    assert set(ExportFolder(dist).digests()) >= {f"transformers/{name}" for name in LAYOUT_FILES}
    (dist / "transformers/config.json").write_text("{}")
    with pytest.raises(ExportError, match="config.json was changed after the export"):
        export.verify(dist)
    shutil.copyfile(out / "transformers/config.json", dist / "transformers/config.json")
    export.bundle(model, dist, ["onnx"])
    assert not (dist / "transformers").exists() or not list((dist / "transformers").rglob("*.*"))


@pytest.fixture(scope="module")
def node():
    """The path of Node, where it finds the library."""
    found = shutil.which("node")
    if not found:
        pytest.skip("Node is not installed")
    looking = [found, "-e", "require.resolve('@huggingface/transformers')"]
    if subprocess.run(looking, capture_output=True).returncode:
        pytest.skip("npm install @huggingface/transformers, and set NODE_PATH to its folder node_modules")
    return found


def ask(node, task, folder, dtype, images):
    """What the library's pipeline of this task answers for each uint8 image."""
    sent = [{"height": x.shape[0], "width": x.shape[1], "data": base64.b64encode(x.tobytes()).decode()} for x in images]
    job = {"task": task, "root": f"{folder.parent}/", "name": folder.name, "dtype": dtype, "images": sent}
    done = subprocess.run([node, SCRIPT], input=json.dumps(job), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def classify(node, folder, dtype, images):
    """What the library answers for uint8 images: per image the five likeliest {label: score}, in order."""
    answers = ask(node, "image-classification", folder, dtype, images)
    return [{x["label"]: x["score"] for x in answer} for answer in answers]


def answer(model, image):
    """The model's own five likeliest for a uint8 image."""
    logits = np.asarray(model(model.preprocessing(image[None])), "float64")[0]
    p = np.exp(logits - logits.max())
    p /= p.sum()
    return {model.labels[i]: p[i] for i in np.argsort(-p)[:5]}


def tolerance(quantize):
    """Of probabilities, for logits of about 1: the bound of the kind on these."""
    return next(kind.max_rel_diff for kind in KINDS if kind.name == quantize)


@pytest.mark.browser
@pytest.mark.parametrize(("dtype", "quantize"), [*zip(("fp32", "q8"), LAYOUT_FILES.values(), strict=True)])
def test_the_library_answers_as_the_model(node, made, dtype, quantize):
    model, out = made
    images = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), "uint8")
    for image, found in zip(images, classify(node, out / "transformers", dtype, images), strict=True):
        expected = answer(model, image)
        assert list(found)[0] == list(expected)[0]
        if quantize is None:
            assert list(found) == list(expected)
        for name in set(found) & set(expected):
            assert abs(found[name] - expected[name]) < tolerance(quantize)


@pytest.mark.browser
@pytest.mark.parametrize("classifier", ["token", "gap"])  # of ViT and of I-JEPA
def test_the_library_opens_the_folder_for_the_hub(node, tmp_path, classifier):
    model = vit(classifier=classifier)
    zoo.save(model, tmp_path / "model", layout="hub")
    images = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), "uint8")
    for image, found in zip(images, classify(node, tmp_path / "model", "fp32", images), strict=True):
        expected = answer(model, image)
        assert list(found) == list(expected)
        np.testing.assert_allclose(list(found.values()), list(expected.values()), atol=1e-5)


@pytest.mark.browser
def test_the_library_gives_the_vectors(node, tmp_path):
    model = vit(num_classes=0, labels=None)
    zoo.save(model, tmp_path / "model", layout="hub")
    images = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), "uint8")
    expected = np.asarray(model(model.preprocessing(images)))
    answers = ask(node, "image-feature-extraction", tmp_path / "model", "fp32", images)
    np.testing.assert_allclose(np.concatenate(answers), expected, atol=1e-5)


@pytest.mark.browser
def test_the_library_crops_as_the_model(node, tmp_path):
    """Smooth pictures: how a resize averages is the library's own."""
    model = shaken(ResNet((32, 32), depths=(1,), width_factor=0.5, num_classes=6))
    model.labels, model.preprocessing = LABELS, Preprocessing((32, 32), mean=MEAN, std=STD, crop=0.8)
    export.bundle(model, tmp_path / "dist", ["onnx"], web_layout="transformers")
    y, x = np.mgrid[0:1:60j, 0:1:84j]
    image = (255 * np.stack([x, y, np.sin(3 * x) * y], axis=-1)).astype("uint8")
    (found,), expected = classify(node, tmp_path / "dist/transformers", "fp32", image[None]), answer(model, image)
    assert list(found) == list(expected)
    for name, score in found.items():
        assert abs(score - expected[name]) < 0.02
