"""CSV files of paths and labels: the common forms, splits, and what is refused."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest
from PIL import Image
from slowness import slow_but

from keras_vit import data, evaluation, models
from keras_vit.errors import ConfigError

NAMES = [f"{i:02d}.png" for i in range(40)]
SMALL = models.Preprocessing((8, 8))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Images whose red channel is their number."""
    folder = tmp_path_factory.mktemp("photos")
    for i, name in enumerate(NAMES):
        Image.fromarray(np.full((8, 8, 3), (i, 0, 200), "uint8")).save(folder / name)
    return folder


def write(folder, text, name="labels.csv", encoding="utf-8"):
    (folder / name).write_text(text, encoding)
    return f"csv:{folder / name}"


def lines(*rows, header="path,label"):
    return "\n".join([header, *rows]) + "\n"


def labels_of(examples):
    """{number of the image: its label}."""
    found = {}
    for images, labels, weights in examples.evaluation(8, SMALL):
        for image, label, weight in zip(np.asarray(images), np.asarray(labels), np.asarray(weights), strict=True):
            if weight:
                found[round((image[0, 0, 0] + 1) * 127.5)] = label.tolist()
    return found


SINGLE = [f"{name},{'cat' if i % 3 else 'dog'}" for i, name in enumerate(NAMES)]


FORMS = [
    lines(*SINGLE),
    lines(*SINGLE, header="Image, Category"),
    "\n".join(SINGLE),  # no header
    "\ufeff" + lines(*SINGLE).replace(",", ";").replace("\n", "\r\n"),
    lines(*(f'"{row.partition(",")[0]}"\t"{row.partition(",")[2]}"' for row in SINGLE), header="path\tlabel"),
    lines(*(f"{name},{int(i % 3 > 0)},{int(i % 3 == 0)},9" for i, name in enumerate(NAMES)), header="path,cat,dog,x")
    .replace(",9", "")
    .replace(",x", ""),
    lines(*(f"7,{row}" for row in SINGLE), header="id,filename,class"),
    lines(*(f".\\{row}" for row in SINGLE)),
]


def test_whole_numbers_are_classes_by_their_size(folder):
    rows = (f"{name},{(10, 9, -1)[i % 3]}" for i, name in enumerate(NAMES))
    assert data.load(write(folder, lines(*rows)), "train+validation").class_names == ("-1", "9", "10")


@pytest.mark.parametrize("text", slow_but(FORMS, FORMS[0], FORMS[3], FORMS[5]))
def test_every_form_names_the_same_examples(folder, text):
    examples = data.load(write(folder, text), "train+validation")
    assert examples.class_names == ("cat", "dog") and not examples.multi_label
    assert labels_of(examples) == {i: int(i % 3 == 0) for i in range(40)}
    assert examples.class_counts().tolist() == [26, 14]


@pytest.mark.slow
def test_the_images_held_out_are_those_of_a_folder(folder, tmp_path):
    for i, name in enumerate(NAMES):
        place = tmp_path / ("cat" if i % 3 else "dog")
        place.mkdir(exist_ok=True)
        (place / name).write_bytes((folder / name).read_bytes())
    rows = [f"{'cat' if i % 3 else 'dog'}/{name},{'cat' if i % 3 else 'dog'}" for i, name in enumerate(NAMES)]
    name = write(tmp_path, lines(*reversed(rows)), "all.csv")
    for split in ("train", "validation"):
        assert labels_of(data.load(name, split)) == labels_of(data.load(f"folder:{tmp_path}", split))
    with pytest.raises(data.DataError, match="has no images of the split test"):
        data.load(name, "test")


@pytest.mark.slow
def test_a_column_says_the_split(folder):
    words = ["Train", "training", "val", "TEST"]
    text = lines(*(f"{row},{words[i % 4]}" for i, row in enumerate(SINGLE)), header="path,label,split")
    name = write(folder, text)
    found = {split: set(labels_of(data.load(name, split))) for split in ("train", "validation", "test")}
    assert found == {
        "train": {i for i in range(40) if i % 4 < 2},
        "validation": set(range(2, 40, 4)),
        "test": set(range(3, 40, 4)),
    }


def test_a_second_column_of_a_splits_name_is_a_class(folder):
    rows = [f"{name},train,{i % 2},{int(i > 5)}" for i, name in enumerate(NAMES)]
    examples = data.load(write(folder, lines(*rows, header="image,set,split,cat")), "train+validation")
    assert examples.class_names == ("cat", "split") and examples.class_counts().tolist() == [34, 20]


SEVERAL = [[n for n, step in (("red", 2), ("round", 3), ("big", 5)) if i % step == 0] for i in range(40)]


@pytest.mark.slow
@pytest.mark.parametrize("form", slow_but(["joined", "columns"], "joined"))
def test_images_of_several_classes_or_none(folder, form):
    if form == "joined":
        text = lines(*(f"{n},{' | '.join(s)}" for n, s in zip(NAMES, SEVERAL, strict=True)), header="image,labels")
    else:
        cells = [",".join(str(int(c in s)) for c in ("red", "big", "round")) for s in SEVERAL]
        text = lines(*map(",".join, zip(NAMES, cells, strict=True)), header="image,red,big,round")
    examples = data.load(write(folder, text), "train+validation")
    assert examples.class_names == ("big", "red", "round") and examples.multi_label
    expected = {i: [float(name in SEVERAL[i]) for name in examples.class_names] for i in range(40)}
    assert labels_of(examples) == expected  # those without a class count too
    assert examples.class_counts().tolist() == [8, 20, 14]
    images, labels = next(iter(examples.train(8, SMALL, augmentation="bit-mixup", steps=1)))
    assert labels.shape == (8, 3) and labels.dtype == "float32"
    held_out = set(labels_of(data.load(f"csv:{folder / 'labels.csv'}", "validation")))
    assert held_out and held_out < set(range(40))


def test_a_column_of_zeros_is_a_class(folder):
    """As in the file of a test split, none of whose images have it: the classes are those of the file for training."""
    rows = [f"{name},{i % 2},{int(i > 5)},0,test" for i, name in enumerate(NAMES)]
    name = write(folder, lines(*rows, header="image,odd,late,never,split"))
    examples = data.load(name, "test")
    assert examples.class_names == ("late", "never", "odd") and examples.class_counts().tolist() == [34, 0, 20]
    with pytest.raises(data.DataError, match="has no images of 'never' to train on"):
        data.load(
            write(folder, lines(*(row.replace(",test", ",train") for row in rows), header="image,odd,late,never,split"))
        )


def test_a_damaged_model_has_no_average_precision(folder):
    rows = [f"{name},{'|'.join(['late'] * (i >= 30) + ['odd'] * (i % 2))}" for i, name in enumerate(NAMES)]
    examples = data.load(write(folder, lines(*rows, header="path,tags")), "train+validation")

    def model(images, training):
        return np.full((len(images), 2), np.nan)

    model.name, model.config, model.preprocessing = "damaged", SimpleNamespace(num_classes=2), SMALL
    model.predict_on_batch = lambda images: model(images, False)
    with pytest.raises(ConfigError, match="damaged gave numbers that are not finite"):
        evaluation.evaluate_multi_label(model, examples)


@pytest.mark.slow
def test_average_precision_of_a_model_that_sees_one_class(folder):
    """Its logit for "late" grows with the image's number, which tells that class; that for "odd" is constant."""
    rows = [f"{name},{'|'.join(['late'] * (i >= 30) + ['odd'] * (i % 2))}" for i, name in enumerate(NAMES)]
    examples = data.load(write(folder, lines(*rows, header="path,tags")), "train+validation")
    model = models.VisionTransformer(
        image_size=8, patch_size=8, hidden_size=3, num_layers=1, num_heads=1, mlp_dim=3, num_classes=2
    )
    found = evaluation.evaluate_multi_label(model, examples, 16)  # its head is zero: every logit ties
    assert [score.average_precision for score in found.classes] == [0.25, 0.5] and found.count == 40
    with pytest.raises(ConfigError, match="The model has 5 classes, .* has 2"):
        evaluation.evaluate_multi_label(type(model)(**{**model.get_config(), "num_classes": 5}), examples)
    named = type(model)(**{**model.get_config(), "labels": examples.class_names[::-1]})  # classes are found by name
    again = evaluation.evaluate_multi_label(named, examples, 16)
    assert [score.average_precision for score in again.classes] == [0.5, 0.25]
    with pytest.raises(ConfigError, match="Judge several classes by evaluate_multi_label"):
        evaluation.evaluate(model, examples)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty. Expected a header with a column path"),
        ("path,label\n", "has a header and no images"),
        ("a,b,c\n1,2,3\n", "has the columns 'a', 'b', 'c'. Expected a header with a column path"),
        (lines("00.png,cat", "01.png"), "line 3, does not have 2 columns"),
        (lines("00.png,cat", "01.png,"), "line 3, has no label. An image without a class needs a column named labels"),
        (lines(",cat", "01.png,dog"), "line 2, has no path"),
        (lines("00.png,cat", "01.png,dog", "./00.png,dog"), r"names ./00.png in line 2 and in line 4. Give each image"),
        (lines("00.png,cat", "01.png,cat"), "has one class, 'cat'. A classifier needs at least two"),
        (
            lines("00.png,cat", "a.png,dog", "b.png,dog"),
            "names 2 images that are not there: 'a.png', 'b.png', the first",
        ),
        (lines("00.png,1,2", header="path,cat,dog"), "has '2' in the column of the class 'dog'. Expected 0 or 1"),
        (lines("00.png,cat,mine", header="path,label,split"), "has the split 'mine'. Expected train, validation, test"),
        (lines("00.png,cat", header="path,path"), "has two columns of one name"),
        (lines("labels.csv,cat", "01.png,dog"), "names files of kinds that are not read: 'labels.csv'"),
        (lines('"00.png,cat'), "cannot be read as CSV"),
    ],
)
def test_bad_files_are_refused(folder, text, sentence):
    with pytest.raises(data.DataError, match=sentence):
        data.load(write(folder, text), "train+validation")


def test_missing_images_beside_a_file_in_the_current_folder_name_that_folder(folder, monkeypatch):
    write(folder, lines("00.png,cat", "a.png,dog"))
    monkeypatch.chdir(folder)
    with pytest.raises(data.DataError, match=rf"the first in line 3. Paths are relative to {folder}\.$"):
        data.load("csv:labels.csv", "train+validation")


def test_other_encodings_missing_files_and_splits_are_refused(folder, tmp_path):
    with pytest.raises(data.DataError, match="is not text in UTF-8. Save it as CSV UTF-8"):
        data.load(write(folder, lines("00.png,café", "01.png,thé"), "latin.csv", "latin-1"))
    with pytest.raises(data.DataError, match="There is no CSV file .*nothing.csv"):
        data.load(f"csv:{tmp_path / 'nothing.csv'}")
    with pytest.raises(data.DataError, match="A CSV file has the splits train, validation, test"):
        data.load(write(folder, lines(*SINGLE)), "all")
    rows = [*SINGLE, "00.png,bird"]
    with pytest.raises(data.DataError, match=r"has no images of 'bird' to train on"):
        data.load(
            write(folder, lines(*(f"{r},train" for r in SINGLE[1:]), f"{rows[-1]},test", header="path,label,split"))
        )


def test_a_part_of_a_file_keeps_several_classes(folder):
    rows = [f"{n},{'|'.join(s)}" for n, s in zip(NAMES, SEVERAL, strict=True)]
    examples = data.load(write(folder, lines(*rows, header="path,labels")), "train+validation", examples=10)
    assert examples.multi_label and examples.num_examples == 10
    assert keras.ops.shape(next(iter(examples.train(4, SMALL, steps=1)))[1]) == (4, 3)
