"""The fine-tuning kit: what learns, how fast, and what is left of it in files; against numpy and scikit-learn."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import average_precision_score
from sklearn.utils.class_weight import compute_class_weight
from slowness import slow_but

from keras_vit import data, layers, models, training, zoo
from keras_vit.errors import ConfigError
from keras_vit.export.preparation import prepare_model
from keras_vit.lora import without_lora
from keras_vit.training.runs.state import write_weights

SIZES = dict(image_size=16, patch_size=8, hidden_size=16, num_layers=3, num_heads=2, mlp_dim=32, num_classes=4)
RNG = np.random.default_rng(0)
IMAGES = RNG.uniform(-1, 1, (6, 16, 16, 3)).astype("float32")
LABELS = np.arange(6) % 4


def randomize(model, seed=1):
    rng = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        variable.assign(variable + rng.normal(0, 0.1, variable.shape))
    return model


def vit(**fields):
    keras.utils.set_random_seed(0)
    return randomize(models.VisionTransformer(**SIZES, **fields))


def resnet():
    return randomize(models.ResNet(image_size=16, depths=(1, 1), width_factor=0.5, num_classes=4))


def hybrid():
    backbone = models.BackboneConfig(depths=(1,), width_factor=0.5)
    return randomize(models.VisionTransformer(**{**SIZES, "patch_size": 2, "num_layers": 1}, backbone=backbone))


def tuned(dtype=None):
    """A model whose LoRA factors are none of them zero."""
    model = vit(dtype=dtype)
    training.enable_lora(model, 2)
    return randomize(model, seed=2)


def gradients(model, remat, graph):
    """(loss, gradients, states of the seeds afterwards) of a training step from the same states."""
    model.remat = remat

    def step():
        with tf.GradientTape() as tape:
            logits = model(IMAGES, training=True)
            loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(LABELS, logits, from_logits=True))
        return loss, tape.gradient(loss, model.trainable_variables)

    seeds = model.non_trainable_variables
    before = [seed.numpy() for seed in seeds]
    loss, found = (tf.function(step) if graph else step)()
    after = [seed.numpy() for seed in seeds]
    for seed, state in zip(seeds, before, strict=True):
        seed.assign(state)
    assert all((a != b).any() for a, b in zip(after, before, strict=True))
    return loss.numpy(), [keras.ops.convert_to_numpy(g) for g in found], after


@pytest.mark.parametrize("make", slow_but([vit, hybrid, resnet], vit))
@pytest.mark.parametrize("graph", slow_but([False, True], False))
def test_rematerialization_gives_the_same_gradients_and_draws_the_same(make, graph):
    rates = dict(dropout_rate=0.2, attention_dropout_rate=0.1, stochastic_depth_rate=0.5)
    model = make(**rates) if make is vit else make()
    loss, expected, states = gradients(model, remat=False, graph=graph)
    again, found, same = gradients(model, remat=True, graph=graph)
    np.testing.assert_allclose(again, loss, rtol=1e-6)
    for variable, a, b in zip(model.trainable_variables, expected, found, strict=True):
        np.testing.assert_allclose(b, a, atol=2e-6 * max(1, np.abs(a).max()), err_msg=variable.path)
    for a, b in zip(states, same, strict=True):
        np.testing.assert_array_equal(a, b)
    assert "remat" not in model.get_config() and not type(model).from_config(model.get_config()).remat


def test_stochastic_depth_skips_examples_whole_and_keeps_the_mean():
    block = layers.EncoderBlock(num_heads=2, mlp_dim=8, stochastic_depth_rate=0.25)
    x = np.repeat(RNG.normal(size=(1, 3, 8)).astype("float32"), 4000, axis=0)
    block.build(x.shape)
    block.mlp.out.kernel.assign(keras.ops.zeros_like(block.mlp.out.kernel))  # of the two residues MSA's alone is left
    block.mlp.out.bias.assign(keras.ops.zeros_like(block.mlp.out.bias))
    whole = np.asarray(block(x[:1], training=False)) - x[:1]
    state = block.stochastic_depth.seed_generator.state
    before = state.numpy()
    added = np.asarray(block(x, training=True)) - x
    kept = np.abs(added).max(axis=(1, 2)) > 0
    np.testing.assert_allclose(added[kept], np.repeat(whole / 0.75, kept.sum(), 0), atol=1e-5)
    assert abs(kept.mean() - 0.75) < 4 * np.sqrt(0.25 * 0.75 / 4000)  # 4 standard deviations of the binomial
    state.assign(before)
    np.testing.assert_array_equal(np.asarray(block(x, training=True)) - x, added)


def test_stochastic_depth_grows_linearly_over_the_blocks_and_is_gone_in_inference():
    model = vit(stochastic_depth_rate=0.4)
    blocks = [model.get_layer(f"encoderblock_{i}") for i in range(3)]
    np.testing.assert_allclose([block.stochastic_depth_rate for block in blocks], np.linspace(0, 0.4, 3))
    plain = vit()
    plain.set_weights(model.get_weights())
    np.testing.assert_array_equal(model(IMAGES), plain(IMAGES))
    with pytest.raises(ConfigError, match="stochastic_depth_rate"):
        training.recipe("finetune-pets").compile(model)
    recipe = training.recipe("finetune-pets", stochastic_depth_rate=0.4)
    assert recipe.model_arguments["stochastic_depth_rate"] == 0.4
    recipe.compile(model)


def test_frozen_weights_stay_to_the_bit_and_have_no_slots():
    model = vit()
    training.freeze_first(model, 2)
    frozen = {v.path: v.numpy() for v in model.non_trainable_variables}
    assert {path.split("/")[0] for path in frozen} == {
        *("embedding", "cls", "posembed_input", "encoderblock_0", "encoderblock_1")
    }
    recipe = training.recipe("finetune-pets", batch_size=6, steps=3, learning_rate=0.1, weight_decay=0.1)
    recipe.compile(model, layer_decay=0.75)
    model.fit(IMAGES, LABELS, batch_size=6, epochs=3, verbose=0)
    assert all((v.numpy() == frozen[v.path]).all() for v in model.non_trainable_variables)
    assert len(model.optimizer.momentums) == len(model.trainable_variables) == 16 + 2 + 2


@pytest.mark.parametrize(("make", "blocks"), [(vit, 3), (hybrid, 1), (resnet, 2)])
def test_freezing_counts_the_encoders_blocks_or_a_resnets_stages(make, blocks):
    learning = [layer.name for layer in make().layers if layer.weights]
    first = "block1_unit01" if make is resnet else "encoderblock_0"
    stem = training.freeze_first(make(), 0)
    assert stem == learning[: learning.index(first)]
    assert learning[len(training.freeze_first(make(), blocks)) :] == learning[-2:]  # a norm and the head
    with pytest.raises(ConfigError, match=rf"has {blocks} (stages|encoder blocks) .* Received: {blocks + 1}"):
        training.freeze_first(make(), blocks + 1)


@pytest.mark.slow
def test_layer_decay_is_the_rate_of_each_layer():
    model = vit()
    before = {v.path: v.numpy() for v in model.trainable_variables}
    with tf.GradientTape() as tape:
        loss = training.SoftmaxLoss()(LABELS, model(IMAGES))
    slopes = dict(zip(before, tape.gradient(loss, model.trainable_variables), strict=True))
    model.compile(training.SGD(0.5, rate_multipliers=training.layer_decay(model, 0.75)), training.SoftmaxLoss())
    model.train_on_batch(IMAGES, LABELS)
    depths = {"embedding": 0, "cls": 0, "posembed_input": 0, "encoder_norm": 4, "head": 4}
    depths |= {f"encoderblock_{i}": i + 1 for i in range(3)}
    for variable in model.trainable_variables:
        path = variable.path
        step = np.float64(0.5) * 0.75 ** (4 - depths[path.split("/")[0]]) * np.asarray(slopes[path], "float64")
        np.testing.assert_allclose(variable.numpy(), before[path] - step, atol=1e-6, err_msg=path)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_loras_factors_are_merged_into_every_file(dtype, tmp_path):
    model = tuned(dtype)
    plain = without_lora(model)
    dense, merged = (m.get_layer("encoderblock_1").mlp.hidden for m in (model, plain))
    a, b = (factor.numpy().astype("float64") for factor in (dense.lora_kernel_a, dense.lora_kernel_b))
    base = next(v for v in dense.weights if v.name == "kernel").numpy()
    np.testing.assert_allclose(merged.kernel.numpy(), base + a @ b, rtol=0, atol=1e-7)  # not rounded to bfloat16
    expected, atol = np.asarray(model(IMAGES)), 1e-5 if dtype == "float32" else 0.05
    assert np.abs(expected - vit(dtype=dtype)(IMAGES)).max() > 10 * atol
    for name in ("model.npz", "model.safetensors", "model.keras", "model.weights.h5"):
        zoo.save(model, tmp_path / name)
        loaded = zoo.load(tmp_path / name, dtype=dtype)
        np.testing.assert_allclose(loaded(IMAGES), expected, atol=atol, err_msg=name)
        np.testing.assert_array_equal(loaded.get_layer("encoderblock_1").mlp.hidden.kernel, merged.kernel)
        assert len(loaded.weights) == len(vit().weights)
    assert keras.saving.load_model(tmp_path / "model.keras").count_params() == plain.count_params()
    prepared = prepare_model(model)  # what every export begins with
    assert not [v.path for v in prepared.weights if "lora" in v.path]
    np.testing.assert_array_equal(prepared.get_layer("encoderblock_1").mlp.hidden.kernel, merged.kernel)


@pytest.mark.slow
def test_a_runs_weights_load_into_models_with_and_without_lora(tmp_path):
    model = tuned("float32")
    write_weights(model, tmp_path / "best.weights.npz")
    plain, other = vit(), vit()
    training.enable_lora(other, 4)
    for again in (plain, other):
        training.load_weights(again, tmp_path / "best.weights.npz")
        np.testing.assert_allclose(again(IMAGES), model(IMAGES), atol=1e-5)
    assert all(np.asarray(v).any() for v in other.weights if v.name == "kernel")


def test_lora_merges_in_models_of_keras_own(tmp_path):
    x = keras.Input((6,))
    dense = keras.layers.Dense(5)
    model = keras.Model(x, dense(x))
    dense.enable_lora(2)
    randomize(model)
    plain = prepare_model(model)
    values = RNG.normal(size=(3, 6)).astype("float32")
    np.testing.assert_allclose(plain(values), model(values), atol=1e-6)
    assert len(plain.weights) == 2


@pytest.mark.slow
def test_lora_trains_its_factors_and_the_head_alone():
    model = vit()
    training.enable_lora(model, 2, seed=5)
    np.testing.assert_array_equal(model(IMAGES), vit()(IMAGES))
    d, m, classes = 16, 32, 4
    factors = 3 * (4 * 2 * (d + d) + 2 * 2 * (d + m))
    assert training.count_trainable(model) == (factors + (d + 1) * classes, vit().count_params())
    before = {v.path: v.numpy() for v in model.weights}
    assert len(before) == len(model.weights)  # each has a path of its own, by which layer decay finds it
    training.recipe("finetune-pets", batch_size=6, steps=2, learning_rate=0.5).compile(model)
    model.fit(IMAGES, LABELS, batch_size=6, epochs=2, verbose=0)
    changed = {v.path for v in model.weights if (v.numpy() != before[v.path]).any()}
    assert changed == {v.path for v in model.trainable_variables}
    assert len(model.optimizer.momentums) == len(changed)


def test_loras_factors_are_made_in_the_models_scope():
    """Wherever it is called: the slots of an optimizer must lie beside the weights."""
    strategy = training.strategy("one_device", devices=["CPU:0"])
    with strategy.scope():
        model = vit()
    training.enable_lora(model, 2)
    assert all(strategy.extended.variable_created_in_scope(v.value) for v in model.trainable_weights)


def test_lora_is_the_same_for_a_seed_and_refused_where_it_cannot_be():
    one, two, other = vit(), vit(), vit()
    for model, seed in ((one, 1), (two, 1), (other, 2)):
        training.enable_lora(model, 2, seed)
    first = [[v.numpy() for v in model.trainable_variables if v.name == "lora_kernel_a"] for model in (one, two, other)]
    assert all((a == b).all() for a, b in zip(*first[:2], strict=True))
    assert not any((a == b).all() for a, b in zip(first[0], first[2], strict=True))
    with pytest.raises(ConfigError, match="has LoRA already"):
        training.enable_lora(one, 2)
    with pytest.raises(ConfigError, match="LoRA needs encoder blocks that train"):
        training.enable_lora(resnet(), 2)
    with pytest.raises(ConfigError, match="The rank of LoRA is at most .*'s smallest width, .*. Received: 500"):
        training.enable_lora(vit(), 500)
    with pytest.raises(ConfigError, match="rank must be positive"):
        training.enable_lora(vit(), 0)


def test_balanced_weights_are_scikit_learns_and_weigh_the_loss_over_the_batch():
    labels = np.array([0] * 9 + [1] * 3 + [2] * 6)
    expected = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    weights = training.balanced_weights(np.bincount(labels))
    np.testing.assert_allclose(weights, expected, rtol=1e-6)
    logits = RNG.normal(size=(18, 3)).astype("float32")
    ((_, y, w),) = training.weigh_classes(tf.data.Dataset.from_tensors((logits, labels)), weights)
    shares = np.exp(logits.astype("float64"))
    losses = -np.log((shares / shares.sum(1, keepdims=True))[np.arange(18), labels])
    loss = training.SoftmaxLoss()(y, logits, sample_weight=w)
    np.testing.assert_allclose(loss, (losses * expected[labels]).sum() / expected[labels].sum(), rtol=1e-5)
    mixed = (np.eye(3)[labels] * 0.7 + np.eye(3)[0] * 0.3).astype("float32")
    ((*_, w),) = training.weigh_classes(tf.data.Dataset.from_tensors((logits, mixed)), weights)
    np.testing.assert_allclose(w, mixed @ expected, rtol=1e-5)
    with pytest.raises(ConfigError, match=r"none of the classes \[1\]"):
        training.balanced_weights([3, 0, 2])


def test_class_counts_are_those_of_the_labels():
    digits = data.load("digits", examples=200)
    labels = np.concatenate([y for _, y, w in digits.evaluation(50, models.Preprocessing((8, 8)))])
    np.testing.assert_array_equal(digits.class_counts(), np.bincount(labels[:200], minlength=10))


@pytest.mark.parametrize("number", [-1, 4])
def test_the_loss_of_a_number_that_is_no_class_is_nan(number):
    loss = training.SoftmaxLoss(label_smoothing=0.1, reduction=None)(np.array([0, number]), np.zeros((2, 4), "float32"))
    np.testing.assert_allclose(loss, [np.log(4), np.nan], rtol=1e-6)


@pytest.mark.parametrize(("scale", "bias"), [(1, 0), (1, -16.8), (5, 37)])  # the last two as of images and texts
def test_mean_average_precision_is_scikit_learns(scale, bias):
    labels = (RNG.uniform(size=(300, 5)) < 0.3).astype("float32")
    labels[:, 4] = 0  # a class without an example is left out
    logits = (scale * (RNG.normal(size=(300, 5)) * 3 + 2 * labels) + bias).astype("float32")
    weights = (RNG.uniform(size=300) < 0.8).astype("float32")
    metric = training.MeanAveragePrecision(5)
    for part in np.split(np.arange(300), 3):
        metric.update_state(labels[part], logits[part], weights[part])
    scores = [average_precision_score(labels[:, i], logits[:, i], sample_weight=weights) for i in range(4)]
    np.testing.assert_allclose(metric.result(), np.mean(scores), atol=2e-3)
    metric.reset_state()
    metric.update_state(labels, np.zeros_like(logits))  # all tie
    np.testing.assert_allclose(metric.result(), labels[:, :4].mean(0).mean(), rtol=1e-5)
    assert training.MeanAveragePrecision.from_config(metric.get_config()).num_classes == 5


def freeze_with_lora(model):
    training.enable_lora(model, 2)


def freeze_all_but_the_head(model):
    model.trainable = False
    model.get_layer("head").trainable = True


FREEZE = {
    "model": lambda model: setattr(model, "trainable", False),
    "all but the head": freeze_all_but_the_head,
    "layers": lambda model: [setattr(layer, "trainable", False) for layer in model.layers[:-1]],
    "first block": lambda model: training.freeze_first(model, 1),
    "part of a block": lambda model: setattr(model.get_layer("encoderblock_0").mlp, "trainable", False),
    "lora": freeze_with_lora,
}


@pytest.mark.parametrize("how", FREEZE)
def test_a_frozen_model_is_unfrozen_as_any_of_keras(how):
    """First a part learns, then all: Keras' two stages of transfer learning."""
    model = vit()
    FREEZE[how](model)
    assert len(model.trainable_weights) < len(model.weights)
    model.trainable = True
    assert [v.path for v in model.trainable_weights] == [v.path for v in model.weights]


def load_by_keras(model, folder):
    model.save(folder / "model.keras")
    return keras.saving.load_model(folder / "model.keras")


def load_by_zoo(model, folder):
    zoo.save(model, folder / "model.keras")
    return zoo.load(folder / "model.keras")


def clone_within_another(model, folder):
    return keras.models.clone_model(put_in_another(model)).layers[1]


def put_in_another(model):
    return keras.Model(x := keras.Input((16, 16, 3)), model(x))


def learning(model):
    """What learns: by Keras' own properties, of the model and of its layers, and of a model around it."""
    around = put_in_another(model)
    weights = [[w.path for w in each.trainable_weights if "lora" not in w.path] for each in (model, around)]
    return weights, [(layer.name, layer.trainable) for layer in model.layers]


@pytest.mark.slow
@pytest.mark.parametrize("kind", FREEZE)
@pytest.mark.parametrize("copy", [load_by_keras, load_by_zoo, clone_within_another])
def test_what_is_frozen_comes_back_frozen(kind, copy, tmp_path):
    model = vit()
    FREEZE[kind](model)
    assert learning(copy(model, tmp_path)) == learning(model) != learning(vit())


@pytest.mark.parametrize("make", [vit, hybrid, resnet])
def test_part_of_a_model_comes_back_frozen(make, tmp_path):
    model = make()
    training.freeze(model, except_for=["head"])
    part = keras.Model(model.inputs[0], model.layers[-2].output)
    part.save(tmp_path / "part.keras")
    for again in (keras.saving.load_model(tmp_path / "part.keras"), keras.models.clone_model(part)):
        assert len(again.weights) == len(model.weights) - 2 and not again.trainable_weights


@pytest.mark.slow
def test_a_model_around_a_frozen_one_trains_on_as_if_it_had_not_been_saved(tmp_path):
    backbone = vit()
    backbone.trainable = False
    model = keras.Model(x := keras.Input((16, 16, 3)), keras.layers.Dense(4)(backbone(x)))
    model.compile(keras.optimizers.Adam(0.1), training.SoftmaxLoss())
    model.fit(IMAGES, LABELS, shuffle=False, verbose=0)
    again = load_by_keras(model, tmp_path)
    assert len(again.optimizer.variables) == len(model.optimizer.variables) == 6
    for each in (model, again):
        each.fit(IMAGES, LABELS, shuffle=False, verbose=0)
    for a, b in zip(again.weights, model.weights, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-6)


def test_a_new_head_learns_and_so_does_what_does_not_say(tmp_path):
    model = vit()
    model.trainable = False
    zoo.save(model, tmp_path / "model.keras")
    assert zoo.load(tmp_path / "model.keras", num_classes=5).trainable
    config = model.get_config()
    assert config.pop("trainable") is False and type(model).from_config(config).trainable  # as in files from before
    with pytest.raises(ConfigError, match="paths of layers and weights in the model. Received: 'encoderblock_0/mpl'"):
        vit(trainable={"encoderblock_0/mpl": False})
