"""The experiments, as tables of rows: which trainings, and what is measured of them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial

from examples.paper_in_miniature.configurations import (
    BUDGETS,
    FINETUNING,
    FRACTAL_MODELS,
    FRACTALS,
    HYBRID,
    PRETRAINING,
    RESNET,
    SGD,
    SHIPPED,
    VIT,
)
from examples.paper_in_miniature.measures import (
    measure_accuracy,
    measure_attention,
    measure_few_shot,
    measure_similarity,
    measure_transfer,
)
from examples.paper_in_miniature.trainings import Training
from keras_vit.evaluation import cost
from keras_vit.models import AxialResNetConfig, AxialViTConfig, ViTConfig, variant
from keras_vit.training import recipe


@dataclass(frozen=True)
class Row:
    """A setting of an experiment: `measure` of each training is a line, or several, of its table.

    Args:
        setting: its name.
        training: with the seed 0.
        measure: a function in measures.py.
        series, x: the curve of the plot that it is a point of, and where; without them it is a dot of its own.
        searched: the training's learning rate and weight decay are where a search for the best begins (sweeps.py).
    """

    setting: str
    training: Training
    measure: Callable = measure_accuracy
    series: str = ""
    x: float = 0
    searched: bool = False


@dataclass(frozen=True)
class Experiment:
    """A claim of the paper, and what measures it.

    Args:
        source: section, table or figure.
        title: of the plot.
        rows: of its table, the most telling first.
        columns: what the measure gives.
        axis: of the plot, horizontal, where its points are of series.
        pairs: settings whose difference is of interest.
    """

    source: str
    title: str
    rows: tuple[Row, ...]
    columns: tuple[str, ...] = ("accuracy",)
    axis: str = ""
    pairs: tuple[tuple[str, str], ...] = ()


def pretrain(config, examples=None, **changes):
    """The common training on the labels of the pre-training dataset, with other fields of the recipe."""
    return Training(config=config, recipe=PRETRAINING.with_(**changes), examples=examples)


def shipped_vit():
    """The package's own ViT of Fashion-MNIST, larger and trained for longer."""
    config = replace(variant(SHIPPED.partition(":")[0]).config, num_classes=10)
    return Training(config=config, recipe=recipe("mini-vit"), finished=SHIPPED)


def learn_fractals(config, steps, examples, **changes):
    """A training whose learning rate and weight decay are then searched from here.

    A climb may end beside the best pair: two of hybrids did that began at 0.003 and 1.0.
    """
    is_vit = isinstance(config, ViTConfig) and config.backbone is None
    start = {"weight_decay": 1.0} if is_vit else {"learning_rate": 0.01}
    recipe = replace(FRACTALS, steps=steps, warmup_steps=steps // 10).with_(**start | changes)
    return Training(config=config, recipe=recipe, task="fractals", examples=examples)


def data_size_rows() -> Iterator[Row]:
    """Models of the same compute at three budgets, and more and more images (Figures 3, 4 and 5)."""
    for steps, sizes in BUDGETS.items():
        for examples in sizes:
            for name, config in FRACTAL_MODELS.items():
                training = learn_fractals(config, steps, examples)
                setting = f"{name}, {steps:,} updates, {examples:,} images"
                series = f"{name}, {steps:,} updates"
                yield Row(setting, training, measure_transfer, series=series, x=examples, searched=True)


# The cells of Table 8: (name, position_embedding, position_embedding_at).
POSITIONS = (
    ("none", "none", "stem"),
    ("1-D, stem", "1d", "stem"),
    ("2-D, stem", "2d", "stem"),
    ("relative", "relative", "stem"),
    ("1-D, every layer", "1d", "every-layer"),
    ("1-D, every layer, shared", "1d", "every-layer-shared"),
    ("2-D, every layer", "2d", "every-layer"),
    ("2-D, every layer, shared", "2d", "every-layer-shared"),
)


def position_rows():
    for name, kind, place in POSITIONS:
        yield Row(name, pretrain(replace(VIT, position_embedding=kind, position_embedding_at=place)), measure_transfer)


def similarity_rows():
    """Figure 10 has models of several rates and lengths; here two rates."""
    for rate in (1e-3, 3e-3):
        yield Row(f"rate {rate:g}", pretrain(VIT, learning_rate=rate), measure_similarity)
    yield Row(SHIPPED, shipped_vit(), measure_similarity)


def masked_patches_rows():
    """From random weights, and from an encoder that has seen all images without their labels, or with them.

    The encoder has had more updates than a model from scratch, so one from scratch gets as many.
    """
    encoder = replace(pretrain(replace(VIT, num_classes=0)), masked=True)
    tuning = replace(PRETRAINING, steps=300, warmup_steps=30)
    longer = replace(PRETRAINING, steps=PRETRAINING.steps + tuning.steps)
    starts = (
        ("from scratch", None, tuning),
        ("masked patches first", encoder, tuning),
        ("from scratch, 1,300 updates", None, longer),
        ("labels of all first", pretrain(VIT), tuning),
    )
    for labels in (100, 1000):
        for name, start, length in starts:
            few = Training(config=VIT, recipe=length, examples=labels, stratified=True, start=start)
            yield Row(f"{name}, {labels:,} labels", few)


def attention_rows():
    for name, config in (("ViT", VIT), ("hybrid", HYBRID)):
        yield Row(name, pretrain(config), measure_attention)
    yield Row(SHIPPED, shipped_vit(), measure_attention)


def few_shot_rows():
    """The ViT of all images, on another task with a few labelled examples of each class."""
    start = pretrain(VIT)
    for shots in (1, 5, 10, 25):
        few = {"examples": 10 * shots, "stratified": True, "task": "transfer", "split": "train"}
        tuned = replace(start, recipe=FINETUNING, start=start, **few)
        for name, training, measure in (
            ("least squares", start, partial(measure_few_shot, shots=shots)),
            ("fine-tuning", tuned, measure_accuracy),
        ):
            yield Row(f"{name}, {shots} of each class", training, measure, series=name, x=shots)


def optimizer_rows():
    """The ResNet by Adam and by SGD; the validation accuracy chooses the rate of each."""
    sgd = {"optimizer": "SGD", "weight_decay": 1e-3}  # BiT's, see the recipe pretrain-jft-sgd
    grids = (("Adam", {}, (1e-3, 3e-3, 3e-4, 0.01, 0.03)), ("SGD", sgd, (0.03, 0.1, 0.01, 0.3, 1.0)))
    for name, fields, rates in grids:
        for rate in rates:
            training = pretrain(RESNET, learning_rate=rate, **fields)
            yield Row(f"{name}, rate {rate:g}", replace(training, split="train"), series=name, x=rate)


def pooling_rows():
    for rate in (1e-3, 3e-3):
        for name, classifier in (("class token", "token"), ("average", "gap")):
            yield Row(f"{name}, rate {rate:g}", pretrain(replace(VIT, classifier=classifier), learning_rate=rate))


def pair_series(rows: Iterable[Row], *pairs: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """The settings of two series at the same place."""
    place = {(row.series, row.x): row.setting for row in rows}
    for first, second in pairs:
        yield from ((name, place[second, x]) for (series, x), name in place.items() if series == first)


DATA_SIZE_PAIRS = tuple(
    (f"{name}, {steps:,} updates", f"ResNet, {steps:,} updates") for name in ("ViT", "hybrid") for steps in BUDGETS
)
VARIANT_PAIRS = (
    ("ViT, average", "ViT"),
    ("ResNet, SGD", "ResNet"),
    ("ViT, no positions", "ViT"),
    ("ViT, 2-D", "ViT"),
    ("ViT, 1-D in every layer", "ViT"),
)


def variant_rows():
    """Two ways to read a ViT out, two optimizers of a ResNet and four kinds of positions, each at its best rate."""
    vit, resnet = FRACTAL_MODELS["ViT"], FRACTAL_MODELS["ResNet"]
    variants = (
        ("ViT", vit, {}),
        ("ViT, average", replace(vit, classifier="gap"), {}),
        ("ResNet", resnet, {}),
        ("ResNet, SGD", resnet, SGD),
        ("ViT, no positions", replace(vit, position_embedding="none"), {}),
        ("ViT, 2-D", replace(vit, position_embedding="2d"), {}),
        ("ViT, 1-D in every layer", replace(vit, position_embedding_at="every-layer"), {}),
    )
    for steps in (800, 2_400):
        for name, config, changes in variants:
            training = learn_fractals(config, steps, 40_000, **changes)
            yield Row(f"{name}, {steps:,} updates", training, measure_transfer, series=name, x=steps, searched=True)


def count_multiply_adds(config):
    """Millions of them, of one image."""
    return cost(config).flops / 2e6


def shape_rows():
    """One dimension at a time of the ViT with 4 layers, width 48, an MLP of 80 and patches of 4 (Figure 8)."""
    changes = ({}, {"num_layers": 8}, {"hidden_size": 96}, {"patch_size": 7}, {"mlp_dim": 160})
    changes += ({"num_layers": 2}, {"hidden_size": 24}, {"patch_size": 14}, {"mlp_dim": 40})
    words = {"num_layers": "layers", "hidden_size": "width", "patch_size": "patch", "mlp_dim": "MLP"}
    for change in changes:
        config = replace(VIT, **change)
        name = " ".join(f"{words[field]} {value}" for field, value in change.items()) or "base"
        yield Row(f"{name} ({count_multiply_adds(config):.1f} M)", pretrain(config))


def resolution_rows():
    """Trained on images of 16 x 16 pixels, then shortly on the same images at the same or at a higher resolution."""
    start = pretrain(replace(VIT, image_size=16))
    tuning = replace(FINETUNING, batch_size=64, augmentation="pad-crop")
    for name, size, new, steps in (
        ("28 pixels, positions resized", 28, False, 200),
        ("16 pixels, as before", 16, False, 200),
        ("28 pixels, new positions", 28, True, 200),
        ("28 pixels, positions resized, 1,000 updates", 28, False, 1000),
        ("16 pixels, as before, 1,000 updates", 16, False, 1000),
        ("28 pixels, new positions, 1,000 updates", 28, True, 1000),
    ):
        config, longer = replace(VIT, image_size=size), replace(tuning, steps=steps)
        yield Row(name, Training(config=config, recipe=longer, start=start, new_positions=new))


def axial_rows():
    """Two axial blocks for each block, as in Axial-ViT-B; and row and column attention for each 3 x 3 convolution."""
    vit, resnet = replace(VIT, classifier="gap"), replace(RESNET, image_size=32)
    axial_vit = AxialViTConfig(**asdict(vit) | {"num_layers": 2 * VIT.num_layers})
    sizes = {"image_size": 32, "depths": RESNET.depths, "width_factor": RESNET.width_factor}
    axial_resnet = AxialResNetConfig(**sizes, num_heads=4, num_classes=10)
    for name, config in (
        ("ViT", vit),
        ("Axial-ViT", axial_vit),
        ("ViT, as deep", replace(vit, num_layers=2 * VIT.num_layers)),
        ("ResNet", resnet),
        ("AxialResNet", axial_resnet),
    ):
        yield Row(f"{name} ({count_multiply_adds(config):.1f} M)", pretrain(config))


EXPERIMENTS = {
    "data-size": Experiment(
        "section 4.3, Figures 3 to 5",
        "Test accuracy by training images, at equal compute",
        tuple(data_size_rows()),
        ("accuracy", "few_shot_accuracy"),
        axis="training images",
        pairs=tuple(pair_series(data_size_rows(), *DATA_SIZE_PAIRS)),
    ),
    "variants": Experiment(
        "Appendix D.1, D.3 and D.4",
        "Variants, each at its best rate and weight decay",
        tuple(variant_rows()),
        ("accuracy", "few_shot_accuracy"),
        axis="updates",
        pairs=tuple(pair_series(variant_rows(), *VARIANT_PAIRS)),
    ),
    "masked-patches": Experiment(
        "Appendix B.1.2", "Masked patch prediction before few labels", tuple(masked_patches_rows())
    ),
    "positions": Experiment(
        "Appendix D.4, Table 8", "Position embeddings", tuple(position_rows()), ("accuracy", "few_shot_accuracy")
    ),
    "similarity": Experiment(
        "Appendix D.4, Figure 10",
        "Similarity of position embeddings at two rates",
        tuple(similarity_rows()),
        ("row", "column", "similarities"),
    ),
    "attention": Experiment(
        "section 4.5, Appendix D.7, Figures 7 and 11",
        "Attention distance by depth",
        tuple(attention_rows()),
        ("block", "head", "distance"),
    ),
    "few-shot": Experiment(
        "section 4.1",
        "Least squares on frozen features against fine-tuning",
        tuple(few_shot_rows()),
        ("accuracy", "validation_accuracy"),
        axis="examples of each class",
        pairs=tuple(pair_series(few_shot_rows(), ("fine-tuning", "least squares"))),
    ),
    "optimizer": Experiment(
        "Appendix D.1, Table 7",
        "Adam against SGD for the ResNet",
        tuple(optimizer_rows()),
        ("accuracy", "validation_accuracy"),
        axis="learning rate",
    ),
    "pooling": Experiment("Appendix D.3, Figure 9", "Class token against average at two rates", tuple(pooling_rows())),
    "shape": Experiment("Appendix D.2, Figure 8", "Depth, width, MLP and patches", tuple(shape_rows())),
    "resolution": Experiment("section 3.2", "Fine-tuning at a higher resolution", tuple(resolution_rows())),
    "axial": Experiment("Appendix D.6, Figure 13", "Axial models", tuple(axial_rows())),
}
