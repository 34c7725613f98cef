"""Optimizers, schedules and losses against the same formulas in numpy float64."""

import keras
import numpy as np
import pytest
from scipy import special

from keras_vit import training
from keras_vit.errors import ConfigError

STEPS = 12


def gradients():
    rng = np.random.default_rng(0)
    return [{"kernel": rng.normal(size=(3, 2)), "bias": rng.normal(size=2)} for _ in range(STEPS)]


def start():
    rng = np.random.default_rng(1)
    return {"kernel": rng.normal(size=(3, 2)), "bias": rng.normal(size=2)}


def run(optimizer, grads=None):
    """Weights after applying the gradients one after the other."""
    variables = {name: keras.Variable(value.astype("float32"), name=name) for name, value in start().items()}
    optimizer.build(list(variables.values()))
    for g in grads or gradients():
        optimizer.apply([keras.ops.convert_to_tensor(g[name], "float32") for name in variables], None)
    return {name: v.numpy() for name, v in variables.items()}


def clipped(g, most):
    norm = np.sqrt(sum((x**2).sum() for x in g.values()))
    return {name: x * min(1.0, most / norm) for name, x in g.items()}


def sgd(rate, momentum=0.0, nesterov=False, decay=0.0, clip=np.inf, grads=None):
    w, v = start(), {name: 0.0 for name in start()}
    for t, g in enumerate(grads or gradients()):
        g = clipped(g, clip)
        for name in w:
            v[name] = momentum * v[name] + g[name]
            step = g[name] + momentum * v[name] if nesterov else v[name]
            w[name] = w[name] - rate(t) * (decay * w[name] * (name == "kernel") + step)
    return w


def adam(rate, decay=0.0, clip=np.inf, b1=0.9, b2=0.999, epsilon=1e-7):
    w, m, v = start(), {name: 0.0 for name in start()}, {name: 0.0 for name in start()}
    for t, g in enumerate(gradients()):
        g = clipped(g, clip)
        for name in w:
            m[name] = b1 * m[name] + (1 - b1) * g[name]
            v[name] = b2 * v[name] + (1 - b2) * g[name] ** 2
            step = np.sqrt(1 - b2 ** (t + 1)) / (1 - b1 ** (t + 1)) * m[name] / (np.sqrt(v[name]) + epsilon)
            w[name] = w[name] - rate(t) * (decay * w[name] * (name == "kernel") + step)
    return w


def close(found, expected, rtol=2e-5):
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=rtol, atol=1e-6, err_msg=name)


def cosine(t, peak=0.1, total=10, warmup=3):
    progress = np.clip((t - warmup) / (total - warmup), 0, 1)
    return peak * min(1, t / warmup) * 0.5 * (1 + np.cos(np.pi * progress))


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_is_the_official_codes_under_a_schedule(nesterov):
    schedule = training.WarmupCosine(0.1, 10, warmup_steps=3)
    ours = training.SGD(schedule, momentum=0.9, nesterov=nesterov, weight_decay=0.2, global_clipnorm=0.7)
    close(run(ours), sgd(cosine, 0.9, nesterov, decay=0.2, clip=0.7))


def test_sgd_is_keras_own_at_a_constant_rate():
    close(run(training.SGD(0.05, momentum=0.9)), run(keras.optimizers.SGD(0.05, momentum=0.9)))


def test_adam_and_adamw():
    close(run(training.Adam(0.01, global_clipnorm=0.5)), adam(lambda t: 0.01, clip=0.5))
    ours = training.AdamW(training.WarmupCosine(0.1, 10, warmup_steps=3), weight_decay=0.3)
    close(run(ours), adam(cosine, decay=0.3), rtol=1e-4)
    close(run(training.Adam(0.01, amsgrad=True)), run(keras.optimizers.Adam(0.01, amsgrad=True)))


def test_a_rate_of_numpy_is_a_rate():
    close(run(training.SGD(np.float32(0.1), weight_decay=0.2)), sgd(lambda t: 0.1, decay=0.2))


def test_accumulation_averages_batches_and_counts_updates():
    pairs = [{k: (a[k] + b[k]) / 2 for k in a} for a, b in zip(gradients()[::2], gradients()[1::2], strict=True)]
    schedule = training.WarmupCosine(0.1, 10, warmup_steps=3)
    ours = training.SGD(schedule, momentum=0.9, global_clipnorm=0.7, gradient_accumulation_steps=2)
    close(run(ours), sgd(cosine, 0.9, clip=0.7, grads=pairs))


def test_averaged_weights():
    optimizer = training.SGD(0.1, use_ema=True, ema_momentum=0.8)
    run(optimizer)
    average, seen = None, []
    for count in range(1, STEPS + 1):
        w = sgd(lambda t: 0.1, grads=gradients()[:count])
        average = w if average is None else {k: 0.8 * average[k] + 0.2 * w[k] for k in w}
        seen.append(average)
    names = [v.name for v in optimizer._trainable_variables]
    found = dict(zip(names, (a.numpy() for a in optimizer._model_variables_moving_average), strict=True))
    close(found, seen[-1])


def test_averages_are_the_weights_before_the_first_update():
    optimizer = training.SGD(0.1, use_ema=True, gradient_accumulation_steps=STEPS + 1)
    run(optimizer)
    close({variable.name: average.numpy() for variable, average in optimizer.averages()}, start())


def test_bfloat16_momentum_is_stored_rounded_and_used_exactly():
    optimizer = training.SGD(0.1, momentum=0.9, momentum_dtype="bfloat16")
    found = run(optimizer)
    assert {m.dtype for m in optimizer.momentums} == {"bfloat16"}
    w, v = start(), {name: np.zeros_like(value) for name, value in start().items()}
    bfloat16 = optimizer.momentums[0].numpy().dtype
    for g in gradients():
        for name in w:
            exact = np.float32(0.9) * v[name].astype("float32") + g[name].astype("float32")
            w[name] = w[name] - 0.1 * exact
            v[name] = exact.astype(bfloat16)
    close(found, w)
    close(run(training.Adam(0.01, momentum_dtype="bfloat16")), adam(lambda t: 0.01), rtol=0.05)


def test_rate_multipliers_follow_the_first_pattern():
    zero = run(training.SGD(0.1, rate_multipliers={"^bias$": 0.0, "": 0.5}))
    expected = sgd(lambda t: 0.05)
    close(zero, {"kernel": expected["kernel"], "bias": start()["bias"]})


@pytest.mark.parametrize("kind", [training.SGD, training.Adam, training.AdamW])
def test_optimizers_come_back_from_their_configuration(kind):
    schedule = training.WarmupLinear(0.1, 10, warmup_steps=3)
    optimizer = kind(schedule, weight_decay=0.1, momentum_dtype="bfloat16", rate_multipliers={"a": 0.5})
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert again.get_config() == optimizer.get_config()


@pytest.mark.parametrize(
    "schedule, expected",
    [
        (training.WarmupCosine(0.1, 10, 3), cosine),
        (training.WarmupLinear(0.1, 10, 3, end=0.01), lambda t: min(1, t / 3) * np.interp(t, (3, 10), (0.1, 0.01))),
        (training.WarmupLinear(1e-6, 10, 3), lambda t: 1e-6 * min(1, t / 3)),  # `end` is 1e-5
        (training.WarmupConstant(0.1, 10, 3), lambda t: 0.1 * min(1, t / 3)),
        (
            training.WarmupStaircase(0.1, 10, 3, boundaries=(5, 8)),
            lambda t: 0.1 * min(1, t / 3) * 0.1 ** ((5 < t) + (8 < t)),
        ),
    ],
)
def test_schedules(schedule, expected):
    found = [float(schedule(t)) for t in range(14)]
    np.testing.assert_allclose(found, [expected(t) for t in range(14)], rtol=1e-5, atol=1e-9)
    again = keras.optimizers.schedules.deserialize(keras.optimizers.schedules.serialize(schedule))
    assert [float(again(t)) for t in range(14)] == found


def test_schedules_that_no_run_can_have():
    with pytest.raises(ConfigError, match="warmup_steps"):
        training.WarmupCosine(0.1, 10, warmup_steps=10)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_losses(smoothing):
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(6, 4)) * 5, rng.integers(0, 4, 6)
    rows = np.eye(4)[labels] * (1 - smoothing) + smoothing / 4
    softmax = -(rows * special.log_softmax(logits, -1)).sum(-1)
    sigmoid = -(rows * special.log_expit(logits) + (1 - rows) * special.log_expit(-logits)).sum(-1)
    weights = np.array([1, 1, 2, 0, 0.5, 1])
    for kind, expected in ((training.SoftmaxLoss, softmax), (training.SigmoidLoss, sigmoid)):
        loss = kind(label_smoothing=smoothing)
        for y in (labels, labels[:, None], np.eye(4)[labels]):
            np.testing.assert_allclose(loss(y, logits), expected.mean(), rtol=1e-5)
        weighed = (expected * weights).sum() / weights.sum()
        np.testing.assert_allclose(loss(labels, logits, sample_weight=weights), weighed, rtol=1e-5)
        assert keras.losses.deserialize(keras.losses.serialize(loss)).get_config() == loss.get_config()
