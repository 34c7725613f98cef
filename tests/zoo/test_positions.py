"""Models of Appendix D.4 in files: saved, read off their tensors, resized, and refused where a format lacks them."""

import keras
import numpy as np
import pytest
from positions import GRID, KINDS, SIZES, TABLE8, answer, images, make
from scipy import ndimage
from slowness import slow_but

from keras_vit import zoo
from keras_vit.errors import CheckpointError, ConfigError
from keras_vit.layers.interpolation import POSITION_MATRICES, resize_offsets

FORMATS = ("npz", "keras", "weights.h5", "safetensors")
IN_TIMM = (("none", "stem"), ("1d", "stem"))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "place"), slow_but(KINDS, *IN_TIMM, ("2d", "every-layer"), ("relative", "stem")))
def test_files_make_an_equal_model(kind, place, tmp_path):
    model = make(kind, place)
    for ending in FORMATS:
        path = tmp_path / f"model.{ending}"
        if ending == "safetensors" and (kind, place) not in IN_TIMM:
            with pytest.raises(CheckpointError, match=f"timm has no ViT with position_embedding='{kind}'"):
                zoo.save(model, path)
            assert not path.exists()
            continue
        zoo.save(model, path)
        again = zoo.load(path)
        assert again.config == model.config
        np.testing.assert_allclose(answer(again, images()), answer(model, images()), atol=1e-6)


@pytest.mark.parametrize(("kind", "place"), [row for row in TABLE8 if row[0] != "none"])
def test_the_architecture_is_read_off_the_tensors(kind, place, tmp_path):
    """As of a file whose comment was lost."""
    model = make(kind, place)
    zoo.save(model, tmp_path / "model.npz")
    np.savez(tmp_path / "bare.npz", **np.load(tmp_path / "model.npz"))
    again = zoo.load(tmp_path / "bare.npz", image_size=SIZES["image_size"])
    assert again.config == model.config
    np.testing.assert_allclose(answer(again, images()), answer(model, images()), atol=1e-6)


def test_names_in_the_authors_layout(tmp_path):
    """The authors' files have pos_embedding at the stem alone; the other names are documented ones of ours."""
    attention = "Transformer/encoderblock_1/MultiHeadDotProductAttention_1"
    for kind, place, name, shape in (
        ("1d", "stem", "Transformer/posembed_input/pos_embedding", (1, 7, 16)),
        ("1d", "every-layer", "Transformer/posembed_1/pos_embedding", (1, 7, 16)),
        ("1d", "every-layer-shared", "Transformer/posembed_shared/pos_embedding", (1, 7, 16)),
        ("2d", "stem", "Transformer/posembed_input/row_embedding", (2, 8)),
        ("2d", "stem", "Transformer/posembed_input/column_embedding", (3, 8)),
        ("relative", "stem", f"{attention}/relative_embedding", (11, 8)),
    ):
        zoo.save(make(kind, place), tmp_path / "model.npz")
        assert np.load(tmp_path / "model.npz")[name].shape == shape


LARGER = {"image_size": (40, 32)}  # 5 x 4 patches


def zoomed(values, size):
    return ndimage.zoom(values, (*(n / o for n, o in zip(size, values.shape, strict=False)), 1), order=1)


@pytest.mark.parametrize("place", ["stem", "every-layer", "every-layer-shared"])
@pytest.mark.parametrize("kind", ["1d", "2d"])
def test_other_image_sizes_resize_them(kind, place, tmp_path):
    """Each axis as scipy's zoom does, which the authors use."""
    model = make(kind, place)
    zoo.save(model, tmp_path / "model.npz")
    larger = zoo.load(tmp_path / "model.npz", **LARGER)
    assert answer(larger, images(size=(40, 32))).shape == (2, 3)
    for name in dict.fromkeys(model.config.position_layers):
        old, new = model.get_layer(name), larger.get_layer(name)
        if kind == "1d":
            grid = np.asarray(old.embedding)[0, 1:].reshape(*GRID, 16)
            np.testing.assert_allclose(
                np.asarray(new.embedding)[0, 1:], zoomed(grid, (5, 4)).reshape(20, 16), atol=1e-5
            )
            np.testing.assert_array_equal(new.embedding[:, :1], old.embedding[:, :1])
        else:
            np.testing.assert_allclose(new.row_embedding, zoomed(np.asarray(old.row_embedding), (5,)), atol=1e-5)
            np.testing.assert_allclose(new.column_embedding, zoomed(np.asarray(old.column_embedding), (4,)), atol=1e-5)


def mean_over_pairs(values, old, new):
    """Each new offset's embedding, from pairs of places: a pair's steps, in old ones, looked up between the corners."""
    (rows, columns), (new_rows, new_columns) = old, new
    steps = np.zeros((2 * rows - 1, 2 * columns - 1, values.shape[1]))
    for down, right in np.ndindex(steps.shape[:2]):
        offset = (down - rows + 1) * columns + (right - columns + 1)
        steps[down, right] = values[offset + rows * columns - 1]
    size = new_rows * new_columns
    total, count = np.zeros((2 * size - 1, values.shape[1])), np.zeros(2 * size - 1)
    for q in range(size):
        for k in range(size):
            (y, x), (v, u) = divmod(q, new_columns), divmod(k, new_columns)
            down = (v - y) * (rows - 1) / max(new_rows - 1, 1) + rows - 1
            right = (u - x) * (columns - 1) / max(new_columns - 1, 1) + columns - 1
            place = np.array([down, right])[:, None]
            found = [ndimage.map_coordinates(steps[..., c], place, order=1)[0] for c in range(values.shape[1])]
            total[k - q + size - 1] += found
            count[k - q + size - 1] += 1
    return total / count[:, None]


@pytest.mark.parametrize("new", [(5, 4), (2, 2), (3, 3), (2, 3), (1, 3), (2, 1)])
def test_offsets_on_another_grid(new):
    values = np.random.default_rng(0).normal(size=(2 * 6 - 1, 4))
    resized = resize_offsets(values, (2, 3), new)
    np.testing.assert_allclose(resized, mean_over_pairs(values, (2, 3), new), atol=1e-9)
    if new == (2, 3):
        np.testing.assert_allclose(resized, values, atol=1e-12)


@pytest.mark.parametrize("interpolation", POSITION_MATRICES)
def test_a_relative_model_at_another_size(interpolation, tmp_path):
    model = make("relative")
    zoo.save(model, tmp_path / "model.npz")
    larger = zoo.load(tmp_path / "model.npz", **LARGER, position_interpolation=interpolation)
    old, new = (np.asarray(m.get_layer("encoderblock_1").attention.relative.embedding) for m in (model, larger))
    np.testing.assert_allclose(new, resize_offsets(old, GRID, (5, 4), interpolation), atol=1e-6)
    assert answer(larger, images(size=(40, 32))).shape == (2, 3)


@pytest.mark.parametrize(("kind", "place"), slow_but(KINDS, *IN_TIMM, ("2d", "every-layer"), ("relative", "stem")))
def test_the_class_token_leaves_and_comes(kind, place, tmp_path):
    model = make(kind, place)
    zoo.save(model, tmp_path / "token.npz")
    gap = zoo.load(tmp_path / "token.npz", classifier="gap")
    zoo.save(gap, tmp_path / "gap.npz")
    again = zoo.load(tmp_path / "gap.npz", classifier="token")
    for name in dict.fromkeys(model.config.position_layers):
        old, new = (keras.ops.convert_to_numpy(m.get_layer(name).compose()) for m in (model, again))
        np.testing.assert_array_equal(new[:, 1:], old[:, 1:])
        assert not new[:, 0].any()


def test_weights_do_not_become_others(tmp_path):
    zoo.save(make("1d"), tmp_path / "model.npz")
    with pytest.raises(ConfigError, match="position_embedding is '1d' in the checkpoint, .* weights=None"):
        zoo.load(tmp_path / "model.npz", position_embedding="2d")
    with pytest.raises(ConfigError, match="position_embedding_at is 'stem' in the checkpoint"):
        zoo.load("ViT-B/16", position_embedding_at="every-layer")  # before anything is fetched
    scratch = zoo.load("ViT-Test/4", weights=None, position_embedding="2d", position_embedding_at="every-layer")
    assert len(scratch.config.position_layers) == 4
