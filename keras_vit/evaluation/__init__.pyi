from .compute import Cost, core_days, cost, pretraining_exaflops
from .device.figure_12 import (
    LargestBatch,
    Speed,
    best_speeds,
    find_largest_batch,
    measure_speed,
    plot_largest_batch,
    plot_speed,
    write_largest_batches,
    write_speeds,
)
from .device.steps import DeviceError
from .evaluating import MultiLabelEvaluation, evaluate, evaluate_multi_label
from .frozen_features import FewShot, evaluate_few_shot, extract_features, few_shot
from .paper import find_published, published
from .predictions import Predictions, collect_predictions, draw_masked_patches, draw_mistakes, write_mistakes
from .probes import linear_probe, nearest_neighbours, probe
from .scores import Evaluation, Share
from .segmentation import ClassIoU, Segmentation, draw_masks, mean_iou
from .vtab import average_groups, draw_groups

__all__ = [
    "ClassIoU",
    "Cost",
    "DeviceError",
    "Evaluation",
    "FewShot",
    "LargestBatch",
    "MultiLabelEvaluation",
    "Predictions",
    "Segmentation",
    "Share",
    "Speed",
    "average_groups",
    "best_speeds",
    "collect_predictions",
    "core_days",
    "cost",
    "draw_groups",
    "draw_masked_patches",
    "draw_masks",
    "draw_mistakes",
    "evaluate",
    "evaluate_few_shot",
    "evaluate_multi_label",
    "extract_features",
    "few_shot",
    "find_largest_batch",
    "find_published",
    "linear_probe",
    "mean_iou",
    "measure_speed",
    "nearest_neighbours",
    "plot_largest_batch",
    "plot_speed",
    "pretraining_exaflops",
    "probe",
    "published",
    "write_largest_batches",
    "write_mistakes",
    "write_speeds",
]
