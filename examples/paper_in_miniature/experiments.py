"""The experiments, as tables of rows: which trainings, and what is measured of them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from examples.paper_in_miniature.configurations import HYBRID, PRETRAINING, RESNET, VIT
from examples.paper_in_miniature.measures import measure_accuracy, measure_similarity
from examples.paper_in_miniature.trainings import Training


@dataclass(frozen=True)
class Row:
    """A setting of an experiment: `measure` of each training is a line, or several, of its table.

    Args:
        setting: its name.
        training: with the seed 0.
        measure: a function in measures.py.
        x: where it is on the plot's horizontal axis, if that has numbers.
    """

    setting: str
    training: Training
    measure: Callable = measure_accuracy
    x: float | None = None


@dataclass(frozen=True)
class Experiment:
    """A claim of the paper, and what measures it.

    Args:
        source: section, table or figure.
        title: of the plot.
        rows: of its table, the most telling first.
        columns: what the measure gives.
    """

    source: str
    title: str
    rows: tuple[Row, ...]
    columns: tuple[str, ...] = ("accuracy",)


def pretrain(config, examples=None, **changes):
    """The common training on the labels of the pre-training dataset, with other fields of the recipe."""
    return Training(config=config, recipe=PRETRAINING.with_(**changes), examples=examples)


def data_size_rows() -> Iterator[Row]:
    """Models of the same compute, the same updates, and more and more of the same images (Figures 3, 4 and 5)."""
    for examples in (600, 60_000, 6_000, 2_000, 20_000):
        for name, config in (("ViT", VIT), ("ResNet", RESNET), ("hybrid", HYBRID)):
            chosen = None if examples == 60_000 else examples
            yield Row(f"{name}, {examples:,} images", pretrain(config, chosen), x=examples)


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
        yield Row(name, pretrain(replace(VIT, position_embedding=kind, position_embedding_at=place)))


def similarity_rows():
    """Figure 10 has models of several rates and lengths; here two rates."""
    for rate in (1e-3, 3e-3):
        yield Row(f"rate {rate:g}", pretrain(VIT, learning_rate=rate), measure_similarity)


EXPERIMENTS = {
    "positions": Experiment(
        "Appendix D.4, Table 8", "Position embeddings: test accuracy by kind and place", tuple(position_rows())
    ),
    "data-size": Experiment(
        "section 4.3, Figures 3, 4 and 5",
        "Test accuracy by number of training images, at equal compute",
        tuple(data_size_rows()),
    ),
    "similarity": Experiment(
        "Appendix D.4, Figure 10",
        "Similarity of position embeddings",
        tuple(similarity_rows()),
        ("row", "column", "similarities"),
    ),
}
