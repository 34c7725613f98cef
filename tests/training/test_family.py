"""The options of CLIP, SigLIP, DINOv2 and DINOv3 train, fine-tune, resume and export as the paper's model does."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from family_models import OPTIONS, made
from slowness import mark_but

from keras_vit import data, evaluation, export, training, zoo
from keras_vit.data import DataError
from keras_vit.errors import ConfigError

pytestmark = pytest.mark.slow
STEPS, BATCH = 8, 6


def batches(step, size=(16, 24)):
    """Batches from `step` on, each made from its number alone."""

    def batch(i):
        images = tf.random.stateless_uniform((BATCH, *size, 3), seed=tf.stack([i, 0]), minval=-1)
        return images, tf.random.stateless_uniform((BATCH,), seed=tf.stack([i, 1]), maxval=3, dtype="int32")

    return tf.data.Dataset.counter(step).map(batch)


def compiled(option, change=lambda model: None, eagerly=False, **fields):
    model, _ = made(option, **{"image_size": (16, 24), **fields})
    change(model)
    optimizer = training.AdamW(1e-3, weight_decay=0.1, global_clipnorm=1.0)
    model.compile(optimizer, training.SoftmaxLoss(), run_eagerly=eagerly)
    return model


def trained(option, change=lambda model: None, **fields):
    """The model after some steps, and the losses."""
    model = compiled(option, change, eagerly=True, **fields)  # in a third of the time of a graph
    losses = model.fit(batches(0), steps_per_epoch=1, epochs=3, verbose=0, shuffle=False).history["loss"]
    return model, losses


def distance(a, b):
    """The greatest difference between the weights of two models, over each weight's largest."""
    pairs = zip(a.get_weights(), b.get_weights(), strict=True)
    return max(np.abs(x - y).max() / max(np.abs(x).max(), 1e-3) for x, y in pairs if x.dtype == "float32")


def in_parts(model):
    model.microbatches = 3


def again(model):
    model.remat = True


@pytest.mark.parametrize("option", mark_but(pytest.mark.long, OPTIONS, "siglip", "dinov2"))
def test_microbatches_and_rematerialization_change_nothing_and_mixed_precision_little(option):
    whole, losses = trained(option)
    for change in (in_parts, again):
        model, others = trained(option, change)
        np.testing.assert_allclose(others, losses, rtol=1e-5)
        assert distance(whole, model) < 1e-4
    half, others = trained(option, dtype="mixed_bfloat16")
    assert {keras.backend.standardize_dtype(v.dtype) for v in half.trainable_variables} == {"float32"}
    np.testing.assert_allclose(others, losses, rtol=0.1)


@pytest.mark.long
def test_what_is_frozen_stays_and_lora_trains_its_factors_and_the_head(tmp_path):
    for option in OPTIONS:
        before = {v.path: v.numpy() for v in made(option, image_size=(16, 24))[0].weights}
        frozen, _ = trained(option, lambda model: training.freeze_first(model, 1))
        changed = {v.path.split("/")[0] for v in frozen.weights if (v.numpy() != before[v.path]).any()}
        assert {"encoderblock_1", "encoder_norm", "head"} <= changed
        assert not changed & {"embedding", "cls", "registers", "posembed_input", "pre_norm", "encoderblock_0"}, option
        tuned, _ = trained(option, lambda model: training.enable_lora(model, 2))
        kept = [v for v in tuned.weights if "lora" not in v.path and not v.path.startswith(("head/", "pre_logits/"))]
        assert all((v.numpy() == before[v.path]).all() for v in kept), option
        zoo.save(tuned, tmp_path / "tuned.npz")
        images = np.zeros((1, 16, 24, 3), "float32")
        merged = zoo.load(tmp_path / "tuned.npz")
        np.testing.assert_allclose(merged(images), tuned(images), atol=1e-5, err_msg=option)


class Stop(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        self.left = getattr(self, "left", 5) - 1
        if self.left < 0:
            raise KeyboardInterrupt


def test_a_run_resumes_to_the_same_bits(tmp_path):
    for name, callbacks in (("whole", []), ("stopped", [Stop()]), ("stopped", [])):
        keras.utils.set_random_seed(0)
        model = compiled("dinov2", dropout_rate=0.1, stochastic_depth_rate=0.2)
        run = training.Run(tmp_path / name, every=3)
        try:
            run.fit(model, batches, STEPS, STEPS, resume=name == "stopped", callbacks=callbacks)
        except KeyboardInterrupt:
            assert callbacks
    whole, stopped = (dict(np.load(tmp_path / name / "last.weights.npz")) for name in ("whole", "stopped"))
    for key, value in whole.items():
        np.testing.assert_array_equal(stopped[key], value, err_msg=key)


@pytest.mark.parametrize(
    "name", mark_but(pytest.mark.long, ["model.onnx", "model.tflite", "saved_model"], "model.onnx")
)
def test_every_format_and_precision_is_proved(name, tmp_path):
    """Quantized files differ, and choose the same classes or alike vectors; `convert` raises where they do not."""
    kinds = (None,) if name == "saved_model" else (None, "float16", "dynamic", "int8")
    for option in OPTIONS:
        model, _ = made(option)
        images = np.random.default_rng(3).integers(-8, 9, (24, *model.config.image_size, 3)).astype("float32") / 8
        for kind in kinds:
            report = export.convert(model, tmp_path / f"{option}_{kind}_{name}", quantize=kind, images=images)
            classifies = model.config.num_classes and model.config.head_bias  # CLIP's and some others give vectors
            alike = report.top1_agreement if classifies else report.cosine
            assert report.max_rel_diff < (2e-5 if kind is None else 0.1) and alike > 0.9, (option, kind)


@pytest.mark.long
def test_instruments_work_or_say_why_not():
    """Masked patches need whole patches and no head; evaluation and few-shot take all."""
    examples, tests = data.load("digits", "train"), data.load("digits", "test")
    for option, fields in OPTIONS.items():
        fields = {name: value for name, value in fields.items() if name != "image_size"}
        keras.utils.set_random_seed(0)
        model = zoo.load("ViT-Test/4", weights=None, image_size=16, labels=examples.class_names, **fields)
        assert evaluation.evaluate(model, tests).top1.count == 360
        found = evaluation.evaluate_few_shot(model, examples, tests, shots=(5,), seeds=(0,))
        assert found[5][0] > 0.15, option
    with pytest.raises(ConfigError, match="representation_size=10"):
        training.MaskedPatchModel(made("zero-shot", num_classes=0)[0])
    with pytest.raises(DataError, match="several whole patches. Received: 18 x 27"):
        training.MaskedPatchModel(made("siglip", num_classes=0)[0])
    for option in ("clip", "dinov2", "dinov3"):
        encoder, _ = made(option, num_classes=0, image_size=16)
        model = training.MaskedPatchModel(encoder)
        before = [v.numpy() for v in model.trainable_variables]
        model.compile(training.Adam(1e-3), training.SoftmaxLoss())
        model.fit(
            examples.with_objective(model.objective).train(8, encoder.preprocessing), steps_per_epoch=2, verbose=0
        )
        after = [v.numpy() for v in model.trainable_variables]
        same = [v.path for v, a, b in zip(model.trainable_variables, before, after, strict=True) if (a == b).all()]
        assert not [path for path in same if not path.endswith("key/bias")], (option, same)
