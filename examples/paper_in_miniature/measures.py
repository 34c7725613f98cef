"""What is measured of a training: functions of the workshop and the training that return lines of a table."""

import numpy as np

from keras_vit import evaluation, inspection
from keras_vit.evaluation.frozen_features import fit

PENALTIES = tuple(2.0**power for power in range(-10, 15, 2))  # the paper has 2^10
FEW_SHOT_FROM = 1000  # images that the shots are chosen from
ATTENDED = 128  # images over which the paper averages attention distances (section 4.5)


def measure_accuracy(workshop, trained):
    """Of the test set, and of the validation set where training left it out."""
    model = workshop.load_model(trained)
    found = {"accuracy": test_accuracy(workshop, model, trained.task, "test")}
    if trained.split == "train":
        found["validation_accuracy"] = test_accuracy(workshop, model, trained.task, "validation")
    return [found]


def measure_transfer(workshop, trained):
    """Of the test set, and of 5-shot least squares on images of another dataset, as Figure 4 has it of ImageNet."""
    model, other = workshop.load_model(trained), "transfer" if trained.task == "pretraining" else "pretraining"
    some = workshop.load_data(other, "train+validation", examples=FEW_SHOT_FROM)
    found = evaluation.evaluate_few_shot(model, some, workshop.load_data(other, "test"), shots=[5], batch_size=200)
    accuracy = test_accuracy(workshop, model, trained.task, "test")
    return [{"accuracy": accuracy, "few_shot_accuracy": round(float(np.mean(found[5])), 5)}]


def test_accuracy(workshop, model, task, split):
    return round(evaluation.evaluate(model, workshop.load_data(task, split), batch_size=200).top1.value, 5)


def measure_few_shot(workshop, trained, shots):
    """Of least squares on frozen features (section 4.1), of the transfer examples that fine-tuning has.

    The validation accuracy chooses the penalty.
    """
    few = workshop.load_data("transfer", "train", examples=10 * shots, seed=trained.seed, stratified=True)
    sets = [few, *(workshop.load_data("transfer", split) for split in ("validation", "test"))]
    model = workshop.load_model(trained)
    chosen, validation, test = (evaluation.extract_features(model, each, batch_size=200) for each in sets)

    def share_right(classify, features, labels):
        return round(float(np.mean(classify(features.astype("float64")) == labels)), 5)

    fitted = {l2: fit(chosen[0].astype("float64"), chosen[1], l2) for l2 in PENALTIES}
    found = {l2: share_right(classify, *validation) for l2, classify in fitted.items()}
    best = max(PENALTIES, key=found.get)
    return [{"accuracy": share_right(fitted[best], *test), "validation_accuracy": found[best]}]


def measure_similarity(workshop, trained):
    """A line for each patch: the cosine similarity of its position embedding to all patches', in raster order."""
    similarity = inspection.position_similarity(workshop.load_model(trained))
    rows, columns = similarity.shape[:2]
    return [
        {"row": i, "column": j, "similarities": " ".join(f"{value:.3f}" for value in similarity[i, j].ravel())}
        for i, j in np.ndindex(rows, columns)
    ]


def measure_attention(workshop, trained):
    """A line for each head: its mean attention distance over test images, in pixels."""
    model = workshop.load_model(trained)
    images, *_ = next(iter(workshop.load_data(trained.task, "test").evaluation(ATTENDED, model.preprocessing)))
    weights = inspection.attention_weights(model, images)
    distance = inspection.attention_distance(weights, model.config.grid, model.config.pixels_per_token)
    return [{"block": b, "head": h, "distance": round(float(distance[b, h]), 3)} for b, h in np.ndindex(distance.shape)]
