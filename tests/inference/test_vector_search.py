"""Search of arrays and of files, all compared or through an index, against numpy in float64."""

import os

import faiss
import numpy as np
import pytest

from keras_vit import inference
from keras_vit.errors import ConfigError
from keras_vit.inference import vector_search
from keras_vit.inference.listing import state_of
from keras_vit.inference.vector_files import Origin, write_vectors

RANDOM = np.random.default_rng(0)
CENTRES = RANDOM.normal(size=(200, 32))


def draw(count):
    """Vectors around 200 centres, of lengths from 1 to 9."""
    vectors = CENTRES[RANDOM.integers(0, 200, count)] + RANDOM.normal(size=(count, 32))
    return (vectors * RANDOM.uniform(1, 9, (count, 1))).astype("float32")


VECTORS, ASKED = draw(12_000), draw(100)


def search(vectors, queries, count):
    """The numbers of the nearest and their cosines."""
    vectors, queries = (
        x / np.linalg.norm(x, axis=1, keepdims=True) for x in (np.float64(vectors), np.float64(queries))
    )
    cosines = queries @ vectors.T
    numbers = np.argsort(-cosines, axis=1, kind="stable")[:, :count]
    return numbers, np.take_along_axis(cosines, numbers, axis=1)


def share_found(numbers, expected):
    return np.mean([len(set(one) & set(other)) / len(other) for one, other in zip(numbers, expected, strict=True)])


def write(path, vectors):
    names = ["a"] * len(vectors)
    columns = {"paths": names, "labels": names, "digests": names}
    write_vectors(path, [vectors], vectors.shape, columns, Origin("m", "0" * 64, "features", False))


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(vector_search, "MOST", 10_000)
    write(tmp_path / "v.npz", VECTORS)
    return tmp_path / "v.npz"


@pytest.mark.parametrize("asked", [1, 100])
def test_all_are_compared(asked, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    expected, cosines = search(VECTORS, ASKED[:asked], 12)
    np.save(tmp_path / "v.npy", VECTORS)
    write(tmp_path / "v.npz", VECTORS)
    arrays = VECTORS, np.load(tmp_path / "v.npy", mmap_mode="r"), VECTORS.astype("float64")
    for vectors in (*arrays, tmp_path / "v.npz", "~/v.npz"):
        numbers, found = inference.nearest(vectors, ASKED[:asked])
        np.testing.assert_array_equal(numbers, expected)
        np.testing.assert_allclose(found, cosines, atol=1e-6)
    assert not (tmp_path / "v.npz.index").exists()


def test_equal_ones_come_in_order_and_zeros_stay():
    numbers, cosines = inference.nearest(np.tile(np.eye(3), (7000, 1)), [[0, 2, 0]], count=7000)
    np.testing.assert_array_equal(numbers[0], np.arange(1, 21_000, 3))
    assert (cosines == 1).all()
    assert inference.nearest(np.zeros((5, 3)), np.zeros((1, 3)))[1].tolist() == [[0] * 5]
    for vectors, queries in ((VECTORS, ASKED * np.nan), (np.full((3, 32), np.inf), ASKED), (VECTORS * 1e20, ASKED)):
        with pytest.raises(ConfigError, match="must be finite"):
            inference.nearest(vectors, queries)


def test_an_index_finds_what_it_says(file):
    expected, cosines = search(VECTORS, ASKED, 12)
    numbers, found = inference.nearest(file, ASKED)
    assert share_found(numbers, expected) > 0.9
    same = numbers[:, 0] == expected[:, 0]
    np.testing.assert_allclose(found[same, 0], cosines[same, 0], atol=1e-6)
    kept = vector_search.open_searchable(file)
    sample = RANDOM.choice(len(VECTORS), 300, replace=False)
    others = share_found(
        kept.search(vector_search.unit_rows(VECTORS, sample), 13)[0], search(VECTORS, VECTORS[sample], 13)[0]
    )
    assert 0.95 <= kept.found < 1 and abs(kept.found - others) < 0.04
    assert kept.index.nprobe < kept.index.nlist / 4, "few lists are searched"
    every, _ = inference.nearest(file, ASKED[:2], count=20_000)
    np.testing.assert_array_equal(np.sort(every), np.tile(np.arange(12_000), (2, 1)))
    np.testing.assert_array_equal(inference.nearest(file, ASKED, exact=True)[0], expected)
    with pytest.raises(ConfigError, match=r"the shapes \(12000, 32\) and \(100, 31\)"):
        inference.nearest(file, ASKED[:, 1:])


def test_an_index_lists_equal_ones_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(vector_search, "MOST", 1000)
    write(tmp_path / "v.npz", np.tile(VECTORS[:300], (4, 1)))
    numbers, cosines = inference.nearest(tmp_path / "v.npz", VECTORS[:5], count=8)
    assert (tmp_path / "v.npz.index").exists()
    assert ((np.diff(cosines) < 0) | (np.diff(numbers) > 0)).all()


def test_the_kept_index_is_used_while_the_file_stays(file, monkeypatch):
    first = inference.nearest(file, ASKED)
    index = file.with_name("v.npz.index")
    made = index.stat().st_ino
    with monkeypatch.context() as patch:
        patch.delattr(vector_search, "read_columns")
        np.testing.assert_array_equal(inference.nearest(file, ASKED), first)
    assert index.stat().st_ino == made
    write(file, VECTORS[::-1])
    numbers, _ = inference.nearest(file, ASKED)
    assert share_found(numbers, search(VECTORS[::-1], ASKED, 12)[0]) > 0.9
    os.utime(file, ns=(0, 0))
    assert not vector_search.read_index(index, state_of(file))
    assert {path.name for path in file.parent.iterdir()} == {"v.npz", "v.npz.index"}


def test_a_damaged_index_is_made_again(file):
    index = file.with_name("v.npz.index")
    index.write_bytes(b"IwFl" * 100 + vector_search.describe_index(state_of(file), (12_000, 32), 0.95))
    assert inference.nearest(file, ASKED)[0].shape == (100, 12) and index.stat().st_size > VECTORS.nbytes


def test_nothing_else_is_replaced_and_nothing_unfinished_stays(file, monkeypatch):
    def fill(index, path):
        raise RuntimeError("write error: No space left on device")

    with monkeypatch.context() as patch, pytest.raises(ConfigError, match=r"v.npz.index cannot be written.*--exact"):
        patch.setattr(faiss, "write_index", fill)
        inference.nearest(file, ASKED)
    assert [path.name for path in file.parent.iterdir()] == ["v.npz"]
    foreign = file.with_name("v.npz.index")
    foreign.write_bytes(b"mine")
    with pytest.raises(ConfigError, match=r"is not an index of this package, so it is not replaced.*--exact"):
        inference.nearest(file, ASKED)
    assert foreign.read_bytes() == b"mine"
    assert inference.nearest(file, ASKED, exact=True)[0].shape == (100, 12)
    with pytest.raises(ConfigError, match=r"There is no file .*nope.npz"):
        inference.nearest(file.with_name("nope.npz"), ASKED)
