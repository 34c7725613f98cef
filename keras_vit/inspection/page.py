"""One page that shows what a model has learned and where it looks: `report`."""

import html
import io
import os
from collections.abc import Sequence

import numpy as np
from keras import Model, ops

from keras_vit.errors import ConfigError
from keras_vit.files import require_local, write_whole
from keras_vit.inspection import plots
from keras_vit.inspection.attention import attention_distance, attention_weights, rollout
from keras_vit.inspection.embeddings import filters, position_similarity
from keras_vit.inspection.intermediate import class_activation, feature_colours, features
from keras_vit.models.preprocessing import to_pixels, to_probabilities
from keras_vit.pages import embed_image, fill_page, tabulate

SHOWN = 8  # images that are drawn; attention distance is averaged over all
BATCH = 8  # images whose attention weights are in memory at a time


def embed(figure, heading):
    """A figure as an <img> that holds its own bytes."""
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return embed_image(file.getvalue(), "png", heading)


def likeliest(model, inputs, names, top):
    """A table of the likeliest classes of each image; nothing for a model without a head."""
    if not model.config.num_classes:
        return ""
    probabilities = to_probabilities(model.predict(inputs, verbose=0).astype("float32"), model)
    labels = model.labels or [f"class {i}" for i in range(probabilities.shape[-1])]
    rows = [
        (html.escape(str(name)), html.escape(", ".join(f"{labels[i]} ({p[i]:.0%})" for i in np.argsort(-p)[:top])))
        for name, p in zip(names, probabilities, strict=True)
    ]
    return "<h2>Predictions</h2>" + tabulate([("image", "likeliest classes"), *rows])


def attend(model, inputs):
    """Attention distance by block and head over all images, and rollout of the first: (a, h), (n, rows, columns)."""
    config, distances, maps = model.config, [], []
    for start in range(0, len(inputs), BATCH):
        weights = attention_weights(model, inputs[start : start + BATCH])
        distances += [
            attention_distance(weights, config.grid, config.pixels_per_token, config.num_registers)
        ] * weights.shape[1]
        if start < SHOWN:
            maps.append(rollout(weights, config.grid, config.classifier == "token", config.num_registers))
    return np.mean(distances, axis=0), np.concatenate(maps)[:SHOWN]


def draw(model, inputs, names):
    """(heading, sentence, figure) of all that can be drawn of the model."""
    first, shown = inputs[:SHOWN], to_pixels(inputs[:SHOWN], model)
    yield "Filters", "What the first layer that sees pixels looks for.", plots.plot_filters(filters(model))
    if not hasattr(model, "attention"):
        maps = class_activation(model, first) if model.config.num_classes else None
        if maps is not None:
            sentence = "How much each place adds to the logit of the image's likeliest class."
            yield "Class activation", sentence, plots.plot_maps(shown, maps, "Class activation", names)
        return
    if model.config.position_layers:
        sentence = "One map for each patch: how alike its position embedding is to those of all patches."
        yield "Position embeddings", sentence, plots.plot_position_similarity(position_similarity(model))
    distance, maps = attend(model, inputs)
    count = f"{len(inputs)} images" if len(inputs) > 1 else "one image"
    sentence = f"How far each head looks, averaged over {count}; the paper takes 128."
    yield "Attention distance", sentence, plots.plot_attention_distance(distance)
    sentence = "Attention Rollout: from the output, through all blocks, to the patches."
    yield "Where the model looks", sentence, plots.plot_maps(shown, maps, "Attention rollout", names)
    colours = feature_colours(features(model, first, layers=-1, as_grid=True))
    sentence = "Three principal components of the last block's patch tokens, as red, green and blue."
    yield "Dense features", sentence, plots.plot_colours(shown, colours, "Features of the last block")


def report(
    model: Model,
    images: Sequence[np.ndarray],
    path: str | os.PathLike,
    names: Sequence[str] = (),
    top: int = 3,
    title: str | None = None,
) -> None:
    """Writes one self-contained HTML page: filters, position embeddings, attention, features or class activation.

    A page that cannot be finished is not begun: what `path` held before stays.

    Args:
        model: a VisionTransformer or a ResNet.
        images: uint8 (h, w, channels), of any sizes; the paper averages attention distances over 128.
        path: of the page, such as "report/index.html".
        names: of the images, as the page shows them.
        top: likeliest classes that are listed for each image.
        title: what the page calls the model; None for its name.

    Raises:
        ConfigError: without images, for images of other channels, and for a model of others.
        PreprocessingError: for a model whose preprocessing is unknown.
    """
    require_local(path)
    if not hasattr(model, "config"):
        raise ConfigError(f"report takes a VisionTransformer or a ResNet. Received: a {type(model).__name__}.")
    if not len(images):
        raise ConfigError("A report needs at least one image. Received: none.")
    if wrong := [np.shape(image) for image in images if np.shape(image)[2:] != (model.config.num_channels,)]:
        expected = f"(h, w, {model.config.num_channels})"
        raise ConfigError(f"The images of a report must be {expected}, of the model's channels. Received: {wrong[0]}.")
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    inputs = np.concatenate([ops.convert_to_numpy(model.preprocessing(np.asarray(image)[None])) for image in images])
    names = list(names) or [f"image {i + 1}" for i in range(len(images))]
    sections = [likeliest(model, inputs, names, top)]
    for heading, sentence, figure in draw(model, inputs, names):
        sections.append(f"<h2>{heading}</h2><p>{sentence}</p><figure>{embed(figure, heading)}</figure>")
    page = fill_page(f"Inspection of {title or model.name}", "\n".join(sections))
    with write_whole(path) as unfinished:
        unfinished.write_text(page, "utf-8")
