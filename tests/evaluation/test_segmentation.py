"""Loss, metric and `mean_iou` of masks, against numpy and scikit-learn; a training that learns shapes."""

import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
import shapes
from scipy.special import softmax
from sklearn.metrics import jaccard_score

import keras_vit
from keras_vit import data, evaluation, export, inference, models, training, zoo
from keras_vit.errors import ConfigError
from keras_vit.trainers.plan import compile_arguments
from keras_vit.trainers.settings import Settings

pytestmark = pytest.mark.usefixtures("forked_converters")
RNG = np.random.default_rng(0)
LABELS, LOGITS = RNG.integers(0, 4, (3, 6, 5)), RNG.normal(size=(3, 6, 5, 4)).astype("float32")
WEIGHTS = (RNG.uniform(size=(3, 6, 5)) < 0.7).astype("float32")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("shapes")
    shapes.write(root / "train", 120, names=())
    shapes.write(root / "test", 40, start=1000, names=())
    (root / "classes.txt").write_text("\n".join(shapes.NAMES))
    return root


def dense(**fields):
    """A model of patches with a random head."""
    fields = {"image_size": 28, "labels": shapes.NAMES, **fields}
    model = zoo.load("ViT-Test/4", weights=None, classifier="patches", **fields)
    kernel = model.get_layer("head").kernel
    kernel.assign(np.random.default_rng(1).normal(size=kernel.shape))
    return model


def metric_of_masks():
    """What a training on masks of four classes shows."""
    examples = SimpleNamespace(multi_label=False, masked=True, num_classes=4)
    return compile_arguments(Settings(dataset="masks:shapes", model="ViT-Test/4"), examples)["metrics"][1]


def test_loss_and_metric_by_pixel():
    labels = np.where(WEIGHTS > 0, LABELS, 255)
    kept, chances = WEIGHTS > 0, softmax(LOGITS.astype("float64"), axis=-1)
    found = training.PixelLoss()(labels, LOGITS, WEIGHTS)
    np.testing.assert_allclose(found, -np.log(chances[kept, LABELS[kept]]).mean(), rtol=1e-5)
    metric = metric_of_masks()
    for i in range(3):
        metric.update_state(labels[i : i + 1], LOGITS[i : i + 1], WEIGHTS[i : i + 1])
    expected = jaccard_score(LABELS[kept], LOGITS.argmax(-1)[kept], average="macro")
    np.testing.assert_allclose(metric.result(), expected, rtol=1e-5)
    none = metric_of_masks()  # classes in no mask are left out
    none.update_state(np.zeros((1, 2, 2)), np.eye(4)[np.zeros((1, 2, 2), int)])
    np.testing.assert_allclose(none.result(), 1.0, rtol=1e-6)


@pytest.mark.slow
def test_mean_iou_is_scikit_learns(folder):
    model, examples = dense(), data.load(f"masks:{folder}", "test")
    found, told = evaluation.mean_iou(model, examples, batch_size=7, keep=3, tell=(told := []).append), told
    images, labels, weights = map(np.concatenate, zip(*examples.evaluation(40, model.preprocessing), strict=True))
    predicted = np.asarray(model(images)).argmax(-1)
    kept = weights > 0
    scores = jaccard_score(labels[kept], predicted[kept], average=None, labels=[0, 1, 2])
    np.testing.assert_allclose([score.iou for score in found.classes], scores)
    np.testing.assert_allclose(found.mean_iou, scores.mean())
    assert found.images == told[-1] == 40 and found.confusion.sum() == kept.sum() > 0.8 * kept.size
    assert (labels[~kept] == 255).all() and found.pixel_accuracy == (labels == predicted)[kept].mean()
    assert [row[3] for row in found.worst] == sorted(row[3] for row in found.worst)
    turned = dense(labels=shapes.NAMES[::-1])  # classes are found by name
    turned.get_layer("head").kernel.assign(model.get_layer("head").kernel.numpy()[:, ::-1])
    for ours, theirs in zip(turned.layers[:-2], model.layers[:-2], strict=True):
        ours.set_weights(theirs.get_weights())
    assert evaluation.mean_iou(turned, examples).mean_iou == found.mean_iou


def test_other_models_and_examples_are_refused(folder):
    examples, classifier = data.load(f"masks:{folder}"), zoo.load("ViT-Test/4", weights=None, labels=shapes.NAMES)
    with pytest.raises(ConfigError, match="^The model gives an image one class, .* --task segmentation"):
        evaluation.mean_iou(classifier, examples)
    with pytest.raises(ConfigError, match="digits has no masks. Expected masks:FOLDER"):
        evaluation.mean_iou(dense(), data.load("digits"))
    with pytest.raises(ConfigError, match="Judge masks by mean_iou"):
        evaluation.evaluate(dense(), examples)
    with pytest.raises(ConfigError, match="Features are judged by one class"):
        evaluation.extract_features(classifier, examples)
    for given in ({"dataset": "digits", "task": "segmentation"}, {"dataset": "masks:x", "task": "classification"}):
        with pytest.raises(ConfigError, match="task=segmentation learns from masks:FOLDER"):
            keras_vit.trainers.Settings(model="ViT-Ti/16", **given)


def test_a_damaged_model_has_no_score(folder):
    config = SimpleNamespace(num_classes=3, classifier="patches")
    model = SimpleNamespace(name="damaged", config=config, preprocessing=models.Preprocessing((28, 28)))
    model.predict_on_batch = lambda images: np.full((*images.shape[:3], 3), np.nan)
    with pytest.raises(ConfigError, match="damaged gave numbers that are not finite"):
        evaluation.mean_iou(model, data.load(f"masks:{folder}", "test"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model.onnx", "model.tflite", "saved_model"])
def test_logits_of_every_pixel_are_exported(folder, tmp_path, name):
    """The file is proved, and judged as the model is; in int8 it loses little."""
    model, examples = dense(), data.load(f"masks:{folder}", "test")
    expected = evaluation.mean_iou(model, examples)
    for kind in (None, "dynamic") if name != "saved_model" else (None,):
        report = export.convert(model, tmp_path / f"{kind}_{name}", quantize=kind)
        assert report.max_rel_diff < (1e-5 if kind is None else 0.05)
        exported = inference.open_model(report.path, like=model)
        assert exported.config.classifier == "patches"
        found = evaluation.mean_iou(exported, examples)
        assert found.mean_iou == pytest.approx(expected.mean_iou, abs=1e-3 if kind is None else 0.03)


@pytest.mark.slow
def test_a_bundle_says_the_shares_of_the_pixels(folder, tmp_path):
    model, picture = dense(), folder / "test/images/1000.png"
    export.bundle(model, tmp_path / "dist", ["onnx"], metadata={"name": "shapes"})
    done = subprocess.run(
        [sys.executable, tmp_path / "dist/predict.py", picture], check=True, capture_output=True, text=True
    )
    found = {line.split("\t")[2]: float(line.split("\t")[1]) for line in done.stdout.splitlines()}
    expected = dict(keras_vit.predict(model, picture))
    assert found == {name: pytest.approx(share, abs=2e-3) for name, share in expected.items()}
    assert export.verify(tmp_path / "dist")


@pytest.mark.long
@pytest.mark.slow
def test_a_killed_training_goes_on_to_the_bit(folder, tmp_path):
    words = f"--data masks:{folder} --task segmentation --model ViT-Test/4 --image-size 28 --steps 30 --batch-size 20"
    train = [sys.executable, "-m", "keras_vit", "pretrain", *words.split(), "--learning-rate=0.01", "--every=3"]
    subprocess.run([*train, "--out", tmp_path / "whole"], check=True, stdout=subprocess.DEVNULL)
    killed = subprocess.Popen([*train, "--out", tmp_path / "killed"], stdout=subprocess.DEVNULL)
    while not list((tmp_path / "killed").glob("checkpoints/step-*6.npz")):
        assert killed.poll() is None
        time.sleep(0.01)
    killed.kill()
    killed.wait()
    subprocess.run([*train[:4], "--out", tmp_path / "killed", "--resume"], check=True, stdout=subprocess.DEVNULL)
    for name in ("best", "last"):
        one, other = (dict(np.load(tmp_path / run / f"{name}.weights.npz")) for run in ("whole", "killed"))
        assert one.keys() == other.keys() and all(np.array_equal(one[key], other[key]) for key in one)


@pytest.mark.long
@pytest.mark.slow
def test_a_shipped_model_learns_shapes(folder, tmp_path):
    """Ten epochs; a head alone, LoRA and a ResNet learn too. Without learning, the background alone makes a quarter."""
    given = {"dataset": f"masks:{folder}", "batch_size": 20, "learning_rate": 0.01, "tell": None, "test": True}
    given |= {"augmentation": "pad-crop", "every": 4}
    model = "ViT-Mini/4:fashion-mnist"
    result = keras_vit.finetune(**given, task="segmentation", out=tmp_path / "whole", model=model, epochs=10)
    assert result.metric == "mean_iou" and result.score > 0.7 and (result.folder / "masks.png").stat().st_size > 10_000
    best = zoo.load(tmp_path / "whole/best.weights.npz")
    assert best.labels == shapes.NAMES and best.config.classifier == "patches"
    test = data.load(f"masks:{folder}", "test")
    assert evaluation.mean_iou(best, test).mean_iou == pytest.approx(result.score, abs=0.02)
    shown = keras_vit.predict(tmp_path / "whole", sorted((folder / "test/images").iterdir())[0], top=3)
    assert abs(sum(shown.probabilities) - 1) < 1e-9 and "background" in dict(shown)
    for name, more in (("lora", {"lora": 4, "learning_rate": 0.03}), ("frozen", {"freeze": "backbone"})):
        learned = keras_vit.finetune(**(given | more), out=tmp_path / name, model=model, epochs=4)
        assert learned.score > 0.28, name
    more = {"model": "R20x0.5:emoji", "image_size": 128, "learning_rate": 0.03}
    assert keras_vit.finetune(**(given | more), out=tmp_path / "resnet", epochs=4).score > 0.28
