"""The paper's numbers, held against sums and statements that the paper prints elsewhere."""

import numpy as np
import pytest

from keras_vit import evaluation, models
from keras_vit.data import VTAB
from keras_vit.errors import UnknownNameError
from keras_vit.models import cost


def value(table, **fields):
    (row,) = (row for row in evaluation.published(table) if all(row[name] == x for name, x in fields.items()))
    return row


def test_vtab_means_are_those_of_table_2():
    for row in evaluation.published(9):
        tasks = [x for name, x in row.items() if name not in ("model", "pre-training", "Mean")]
        assert len(tasks) == len(VTAB) == 19
        assert np.mean(tasks) == pytest.approx(row["Mean"], abs=0.051)
        same = {"model": row["model"], "pre-training": row["pre-training"], "dataset": "VTAB (19 tasks)"}
        assert value(2, **same)["value"] == pytest.approx(np.mean(tasks), abs=0.03)


def test_figure_2_has_the_means_of_table_9():
    for row, tasks in zip(evaluation.published("Figure 2"), evaluation.published(9), strict=True):
        every = list(tasks.values())[2:-1]
        groups = [every, every[:7], every[7:11], every[11:]]
        assert list(row.values())[2:] == [pytest.approx(np.mean(group), abs=0.051) for group in groups]
        assert (row["model"], row["pre-training"]) == (tasks["model"], tasks["pre-training"])


def test_averages_of_table_7():
    for model in ("ResNet50", "ResNet152x2"):
        for optimizer in ("Adam", "SGD"):
            rows = [r for r in evaluation.published(7) if (r["model"], r["optimizer"]) == (model, optimizer)]
            *values, average = (row["value"] for row in rows)
            assert np.mean(values) == pytest.approx(average, abs=0.02)


@pytest.mark.parametrize("dataset", ["ImageNet", "ImageNet ReaL", "CIFAR-10", "CIFAR-100"])
@pytest.mark.parametrize("model", ["ViT-B/32", "ViT-B/16", "ViT-L/32"])
def test_tables_5_and_6_agree_where_they_do(model, dataset):
    five = value(5, model=model, dataset=dataset, **{"pre-training": "JFT-300M"})["value"]
    assert value(6, model=model, epochs=7)[dataset] == five


def test_where_the_paper_disagrees_with_itself():
    assert value(5, model="ViT-H/14", dataset="ImageNet", **{"pre-training": "JFT-300M"})["value"] == 88.04
    assert value(6, model="ViT-H/14")["ImageNet"] == 88.08
    assert value(6, model="R50x1+ViT-L/16", epochs=7)["exaFLOPs"] == 859


def test_table_1_is_the_table_of_variants():
    for row, name in zip(evaluation.published(1), ("ViT-B/16", "ViT-L/16", "ViT-H/14"), strict=True):
        config = models.variant(name).config
        assert all(
            getattr(config, field) == row[field] for field in ("num_layers", "hidden_size", "mlp_dim", "num_heads")
        )
        assert cost.count_parameters(config) / 1e6 == pytest.approx(row["millions of parameters"], rel=0.01)


def test_every_row_is_as_wide_as_its_table():
    for table in (1, 2, 5, 6, 7, 8, 9, "Figure 2", "B.1.2", "D.9"):
        assert evaluation.published(table)
    with pytest.raises(UnknownNameError, match="There is no table of numbers '3'. Known: 1, 2, 5"):
        evaluation.published(3)
