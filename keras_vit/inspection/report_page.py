"""`report`: a page that shows what a model has learned and where it looks."""

import io
import math
import os
from collections.abc import Sequence

import numpy as np
from keras import Model, ops

from keras_vit.errors import ConfigError
from keras_vit.files import local_path, write_whole
from keras_vit.inspection import plots
from keras_vit.inspection.attention_maps import attention_distance, attention_weights, rollout
from keras_vit.inspection.learned import class_activation, feature_colours, features, filters, position_similarity
from keras_vit.models.preprocessing import to_pixels, to_probabilities
from keras_vit.pages import WIDTH, draw_thumbnail, embed_image, fill_page, lay_out_cards, list_answers

SHOWN = 12  # images that are drawn; attention distance is averaged over all
BATCH = 8  # images whose attention weights are in memory at a time, if these are few
WEIGHTS = 2**27  # attention weights in memory at a time: 512 MiB, or those of one image
TOP = 3  # most probable classes listed for an image


def draw_figure(figure, heading):
    """A figure as an <img> with embedded bytes, on white."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=160)
    return f'<figure class="paper">{embed_image(file.getvalue(), "png", heading)}</figure>'


def draw_card(image, name):
    """An image (h, w, c) in [0, 1] or uint8, and its name."""
    pixels = image if image.dtype == np.uint8 else (np.clip(image, 0, 1) * 255).round().astype("uint8")
    return draw_thumbnail(pixels if pixels.shape[-1] == 3 else np.repeat(pixels[..., :1], 3, axis=-1), name)


def enlarge_pixels(image):
    """Repeats each pixel of an image, so that a map over it looks smoother than the pixels."""
    times = max(1, WIDTH // max(image.shape[:2]))
    return image.repeat(times, axis=0).repeat(times, axis=1)


def list_predictions(model, inputs, images, names):
    """The first images with their most probable classes."""
    probabilities = to_probabilities(model.predict(inputs, verbose=0).astype("float32"), model)
    labels = model.labels or [f"class {i}" for i in range(probabilities.shape[-1])]
    cards = [
        draw_card(image, name) + list_answers((str(labels[i]), p[i]) for i in np.argsort(-p)[:TOP])
        for image, name, p in zip(images, names, probabilities, strict=False)
    ]
    return lay_out_cards(cards)


def attend(model, inputs):
    """Attention distance by block and head over all images, and rollout of the first: (l, h), (n, rows, columns)."""
    config, distances, maps = model.config, [], []
    grid = config.grid_of(inputs.shape[1:3])
    of_image = config.num_layers * config.num_heads * (math.prod(grid) + config.prefix_tokens) ** 2
    batch = min(max(WEIGHTS // of_image, 1), BATCH)
    for start in range(0, len(inputs), batch):
        weights = attention_weights(model, inputs[start : start + batch])
        distance = attention_distance(weights, grid, config.pixels_per_token, config.num_registers)
        distances += [distance] * weights.shape[1]
        if start < SHOWN:
            maps.append(rollout(weights, grid, config.classifier == "token", config.num_registers))
    return np.mean(distances, axis=0), np.concatenate(maps)[:SHOWN]


def describe_count(count, of=None):
    """A number of images in words: "one image", "24 images", or "24 of 128 images".

    >>> describe_count(1), describe_count(24, 128)
    ('one image', '24 of 128 images')
    """
    some = "one image" if count == 1 else f"{count} images"
    return some if of in (None, count) else f"{count} of {of} images"


def draw(model, inputs, images, names):
    """(heading, sentence, HTML) of everything that can be drawn for the model, beginning with maps over images."""
    classifies = model.config.classifier != "patches" and not model.gives_vectors
    first, names = inputs[:SHOWN], names[:SHOWN]
    shown = [enlarge_pixels(image) for image in to_pixels(first, model)]

    def cards(maps):
        return lay_out_cards(
            draw_card(plots.darken(*pair), name) for *pair, name in zip(shown, maps, names, strict=True)
        )

    if classifies:
        sentence = f"The {TOP} most probable classes of {describe_count(len(first), len(inputs))}, as the bars show."
        yield "Predictions", sentence, list_predictions(model, first, images, names)
    attends = hasattr(model, "attention")
    if attends:
        distance, maps = attend(model, inputs)
        sentence = "Bright patches affect the output most: attention rollout (Figure 6). Are they on the object?"
        yield "Where the model looks", sentence, cards(maps)
        colours = feature_colours(features(model, first, layers=-1, as_grid=True))
        sentence = "To the model, patches of one colour are alike: three principal components of its last tokens."
        tiles = zip(colours, names, strict=True)
        yield "Dense features", sentence, lay_out_cards(draw_card(tile, name) for tile, name in tiles)
        sentence = (
            f"A dot for each head: how far it looks, averaged over {describe_count(len(inputs))}; the paper took 128. "
            "In the first blocks, heads that look far see the whole image at once; those near the axis see what "
            "convolutions see."
        )
        yield "Attention distance", sentence, draw_figure(plots.plot_attention_distance(distance), "Attention distance")
        if model.config.position_layers:
            sentence = (
                "A map for each patch: patches with a similar position embedding are yellow. If these are neighbours, "
                "rows and columns, the model has learned the grid."
            )
            figure = plots.plot_position_similarity(position_similarity(model))
            yield "Position embeddings", sentence, draw_figure(figure, "Position embeddings")
    elif classifies:
        sentence = "Bright places add most to the logit of the most probable class. Are they on the object?"
        yield "Class activation", sentence, cards(class_activation(model, first))
    sentence = "The filters of the first layer: colours and, after enough training, edges in every direction."
    yield "Filters", sentence, draw_figure(plots.plot_filters(filters(model)), "Filters")


def report(
    model: Model,
    images: Sequence[np.ndarray],
    path: str | os.PathLike,
    names: Sequence[str] = (),
    title: str | None = None,
) -> None:
    """Writes one self-contained HTML page: filters, position embeddings, attention, features or class activation.

    If the page cannot be finished, the file at `path` stays as it was.

    Args:
        model: a VisionTransformer or a ResNet.
        images: uint8 (h, w, channels), of any sizes; the paper averages attention distances over 128.
        path: file of the page, such as "report/index.html".
        names: names of the images on the page; the others are numbered.
        title: title of the page; None for the model's name and the number of images.

    Raises:
        ConfigError: for no images, images with other channels, or a model from elsewhere.
        PreprocessingError: for a model whose preprocessing is unknown.
    """
    path = local_path(path)
    if not hasattr(model, "config"):
        raise ConfigError(f"report takes a VisionTransformer or a ResNet. Received: a {type(model).__name__}.")
    if not len(images):
        raise ConfigError("A report needs at least one image. Received: none.")
    if wrong := [np.shape(image) for image in images if np.shape(image)[2:] != (model.config.num_channels,)]:
        expected = f"(h, w, {model.config.num_channels})"
        raise ConfigError(f"The images of a report must be {expected}, of the model's channels. Received: {wrong[0]}.")
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    inputs = np.concatenate([ops.convert_to_numpy(model.preprocessing(np.asarray(image)[None])) for image in images])
    names = [*names, *(f"image {i + 1}" for i in range(len(names), len(images)))]
    sections = [
        f"<section><h2>{heading}</h2><p>{sentence}</p>{body}</section>"
        for heading, sentence, body in draw(model, inputs, images, names)
    ]
    page = fill_page(title or f"{model.name}: {describe_count(len(images))}", "\n".join(sections))
    with write_whole(path) as unfinished:
        unfinished.write_text(page, "utf-8")
