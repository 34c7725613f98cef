"""Cost, against TensorFlow's own counter of operations, the built models, and the paper's Table 6."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from positions import whole
from slowness import slow_but

from keras_vit import evaluation, models
from keras_vit.errors import ConfigError

SMALL = {"hidden_size": 24, "num_layers": 2, "num_heads": 3, "mlp_dim": 40, "num_classes": 7}
MODELS = {
    "token": (models.VisionTransformer, {**SMALL, "image_size": (32, 48), "patch_size": 8}),
    "gap": (
        models.VisionTransformer,
        {**SMALL, "image_size": 40, "patch_size": (4, 8), "classifier": "gap", "representation_size": 12},
    ),
    "map": (
        models.VisionTransformer,
        {**SMALL, "image_size": (32, 48), "patch_size": 8, "classifier": "map", "num_registers": 2, "gated_mlp": True},
    ),
    "hybrid": (
        models.VisionTransformer,
        {**SMALL, "image_size": (64, 96), "patch_size": 1, "backbone": {"depths": (1, 2), "width_factor": 1}},
    ),
    "relative": (
        models.VisionTransformer,
        {**SMALL, "image_size": (32, 48), "patch_size": 8, "position_embedding": "relative"},
    ),
    "every layer": (
        models.VisionTransformer,
        {
            **{**SMALL, "image_size": (32, 48), "patch_size": 8, "classifier": "gap"},
            **{"position_embedding": "2d", "position_embedding_at": "every-layer"},
        },
    ),
    "axial vit": (models.AxialVisionTransformer, {**SMALL, "image_size": (32, 48), "patch_size": 8}),
    "axial vit, gap": (
        models.AxialVisionTransformer,
        {**SMALL, "image_size": 40, "patch_size": (4, 8), "classifier": "gap"},
    ),
    "axial resnet": (models.AxialResNet, {"image_size": (64, 96), "depths": (2, 1, 1), "num_classes": 7}),
    "resnet": (models.ResNet, {"image_size": (64, 80), "depths": (2, 1, 1), "num_classes": 7}),
}
QUICK = ("token", "map", "relative", "axial vit", "resnet")
PRODUCTS = ("MatMul", "BatchMatMulV2", "Conv2D")


@pytest.fixture(scope="module", params=slow_but(MODELS, *QUICK))
def model(request):
    make, fields = MODELS[request.param]
    return make(**fields)


def traced(model):
    """The operations of the forward pass of one image, of all tokens, as the paper counts them."""
    every_token = model if isinstance(model.config, models.ResNetConfig) else whole(model)
    call = tf.function(lambda images: every_token(images, training=False))
    return call.get_concrete_function(tf.zeros((1, *model.config.image_size, 3))).graph


def test_flops_are_tensorflows(model):
    graph = traced(model)
    options = tf.compat.v1.profiler.ProfileOptionBuilder.float_operation()
    options.update(output="none")
    profile = tf.compat.v1.profiler.profile(graph, options=options)

    def count(node):
        operations = {operation.name: operation.type for operation in graph.get_operations()}
        own = node.total_float_ops - sum(child.total_float_ops for child in node.children)
        return (own if operations.get(node.name) in PRODUCTS else 0) + sum(map(count, node.children))

    assert evaluation.cost(model).flops == count(profile)


def test_activations_are_the_outputs_of_products(model):
    shapes = [tuple(op.outputs[0].shape) for op in traced(model).get_operations() if op.type in PRODUCTS]
    assert evaluation.cost(model).activation_bytes == 4 * sum(map(np.prod, shapes))


def test_parameters_are_the_models(model):
    assert evaluation.cost(model).parameters == model.count_params() == evaluation.cost(model.config).parameters


@pytest.mark.parametrize("row", evaluation.published(6), ids=lambda row: f"{row['model']}-{row['epochs']}")
def test_table_6(row):
    name = row["model"].replace("ResNet", "R").replace("R50x1+", "R50+")
    found = evaluation.pretraining_exaflops(models.variant(name).config, row["epochs"])
    slips = {("ViT-B/32", 7): 56.1, ("R50+ViT-L/16", 7): 1668 / 2}
    assert found == pytest.approx(slips.get((name, row["epochs"]), row["exaFLOPs"]), rel=0.01)


def test_a_model_has_the_exaflops_of_its_configuration():
    """By hand: 4 patches and a class token, a block of width 16 and MLP 24, two classes; 6 * products * images."""
    model = models.VisionTransformer(
        image_size=224, patch_size=112, hidden_size=16, num_layers=1, num_heads=2, mlp_dim=24, num_classes=2
    )
    block = 5 * (4 * 16**2 + 2 * 16 * 24) + 2 * 5**2 * 16
    products = 4 * 112**2 * 3 * 16 + block + 2 * 16
    for given in (model, model.config):
        found = evaluation.pretraining_exaflops(given, 3, images=10)
        assert found == pytest.approx(6 * products * 30 / 1e18)


def test_sizes_of_numpy_are_sizes():
    config = models.variant("ViT-Ti/16").config
    found = [evaluation.cost(config, size) for size in np.array([224, 384])]
    assert found == [evaluation.cost(config, (size, size)) for size in (224, 384)]


def test_core_days_of_table_2():
    for name, speed, days in (("ViT-L/16", 26.7, 680), ("ViT-H/14", 19.7, 2500)):
        exaflops = evaluation.pretraining_exaflops(models.variant(name).config, 14)
        assert evaluation.core_days(exaflops, speed) == pytest.approx(days, rel=0.01)


def read_table(head):
    """The cells, row by row, of the table of docs/experiments.md with this head."""
    page = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text("utf-8")
    rows = page.partition(f"\n| {head} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_the_page_has_the_costs_of_axial_models():
    rows = read_table("model at 224")
    assert len(rows) == 6
    for name, *said in rows:
        cost = evaluation.cost(models.variant(name).config, 224)
        values = cost.parameters / 1e6, cost.flops / 1e9, cost.activation_bytes / 2**20
        assert said == [f"{value:.{digits}f}" for value, digits in zip(values, (1, 1, 0), strict=True)]


def test_the_page_has_the_parameters_of_position_embeddings_and_table_8():
    printed = {row.pop("position embedding"): [*row.values()] for row in evaluation.published(8)}
    places = ["stem", "every-layer", "every-layer-shared"]
    rows, kind = read_table("`position_embedding`"), ""
    assert len(rows) == 10
    for named, where, parameters, accuracy in rows:
        kind = named.split("`")[1] if named else kind
        place = where.split("`")[1] if where else "stem"
        fields = {"position_embedding": kind, "position_embedding_at": place}
        config = dataclasses.replace(models.variant("ViT-B/16").config, **fields)
        assert parameters == f"{evaluation.cost(config).parameters:,}"
        assert accuracy == (f"{printed[kind][places.index(place)]:.5f}" if kind in printed else "")


def test_bad_input_is_a_sentence():
    with pytest.raises(ConfigError, match="Received: str"):
        evaluation.cost("ViT-B/16")
    with pytest.raises(ConfigError, match="pretraining_exaflops takes a model .* Received: str"):
        evaluation.pretraining_exaflops("ViT-B/16", 7)
    with pytest.raises(ConfigError, match="cost needs image_size, such as 224"):
        evaluation.cost(models.ResNetConfig(image_size=None))
    assert evaluation.cost(models.ResNetConfig(image_size=None), 224).parameters == 25_549_352
