"""The private names of libraries that the package takes are those of docs/private_names.md, each with its reason."""

import ast
import importlib
import pathlib
from typing import NamedTuple

import keras
import pytest
import tensorflow as tf
from keras.src.backend.tensorflow.trainer import TFEpochIterator
from tensorflow.python.distribute.values import PerReplicaSpec

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = {"": ROOT / "keras_vit", "zoo/": ROOT / "zoo", "export/": ROOT / "export"}

DOCUMENT = ROOT / "docs" / "private_names.md"


class PrivateName(NamedTuple):
    """A row of docs/private_names.md."""

    owner: str
    name: str
    modules: tuple
    why: str
    until: str


def read_rows():
    for line in DOCUMENT.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and cells[1].startswith("`"):
            owner, name, modules, why, until = cells
            yield PrivateName(owner, name.strip("`"), tuple(modules.split(", ")), why, until)


NAMES = list(read_rows())

# Documented by Python in spite of their underscore.
PUBLIC = {"_replace", "_asdict", "_fields"}
OURS = {("models/classifier", "_preprocessing"), ("models/classifier", "_labels")}
PRIVATE_MODULES = ("keras.src", "tensorflow.python")


def sources():
    """(name of the module as the rows write it, its tree) for every module of the package."""
    for prefix, folder in PACKAGE.items():
        for path in sorted(folder.glob("**/*.py")):
            inside = path.relative_to(folder)
            if prefix or inside.parts[0] not in ("zoo", "export"):  # which are links
                yield f"{prefix}{inside.with_suffix('').as_posix()}", ast.parse(path.read_text())


def is_private(name):
    return name.startswith("_") and not name.endswith("__") and name.strip("_") != "" and name not in PUBLIC


def names_in(node):
    """The private names that one node of a tree takes."""
    match node:
        case ast.Attribute(value=ast.Name(id="os"), attr="_exit"):
            return  # public, and documented, in spite of its name
        case ast.Attribute(attr=name) if is_private(name):
            yield name
        case ast.ClassDef(body=body):
            yield from (each.name for each in body if isinstance(each, ast.FunctionDef) and is_private(each.name))
        case ast.Call(func=ast.Name(id="getattr" | "hasattr" | "setattr"), args=[_, ast.Constant(value=name), *_]):
            yield from filter(is_private, [name])
        case ast.Import(names=aliases):
            yield from (alias.name for alias in aliases if is_private_module(alias.name))
        case ast.ImportFrom(module=str(module), names=aliases):
            yield from (f for f in (f"{module}.{alias.name}" for alias in aliases) if is_private_module(f))
        case ast.Constant(value=str(text)) if text.startswith(PRIVATE_MODULES):
            yield text


def is_private_module(name):
    """Whether a part of the dotted name is private; our own modules may have an underscore."""
    first, *parts = name.split(".")
    return name.startswith(PRIVATE_MODULES) or (first != "keras_vit" and any(map(is_private, [first, *parts])))


def taken(tree):
    return {name for node in ast.walk(tree) for name in names_in(node)}


def mentioned(tree):
    """The names that strings spell, which may be given to a library in many ways."""
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_every_private_name_is_listed():
    listed = {(module, row.name) for row in NAMES for module in row.modules} | OURS
    found = {(module, name) for module, tree in sources() for name in taken(tree)}
    assert sorted(found - listed) == [], "private names without a row"


@pytest.mark.slow
def test_every_row_is_needed():
    listed = {(module, row.name) for row in NAMES for module in row.modules} | OURS
    found = {(module, name) for module, tree in sources() for name in taken(tree) | mentioned(tree)}
    assert sorted(listed - found) == [], "rows that nothing needs any more"


@pytest.mark.parametrize(
    "code",
    [
        "model._flatten_layers()",
        "class A(keras.Model):\n    def _make_function(self): pass",
        "getattr(x, '_keras_history', None)",
        "import tensorflow.python.ops",
        "from keras.src import backend",
        "from keras._tf_keras import layers",
        "NAME = 'keras.src.callbacks'",
        "model._distribute_strategy = None",
    ],
)
def test_a_private_name_is_found_however_it_is_taken(code):
    assert len(taken(ast.parse(code))) == 1


@pytest.mark.parametrize("code", ["self.__dict__", "_, x = y", "row._replace(a=1)", "from keras_vit import _version"])
def test_public_names_are_not_taken_for_private_ones(code):
    assert taken(ast.parse(code)) == set()


@pytest.fixture(scope="module")
def owners():
    """Something of every kind that the rows name, built as far as its names need it."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    x = keras.Input((3,))
    layer = keras.layers.Dense(2)
    model = keras.Model(x, layer(x))
    optimizer = keras.optimizers.SGD(use_ema=True, gradient_accumulation_steps=2)
    optimizer.build(model.trainable_variables)
    model.compile(optimizer, "mse")
    data = tf.data.Dataset.from_tensors((tf.zeros((1, 3)), tf.zeros((1, 2))))
    return {
        "model": model,
        "layer": layer,
        "sequential": keras.Sequential([keras.Input((3,)), keras.layers.ReLU()]),
        "symbolic tensor": model.output,
        "variable": layer.kernel,
        "optimizer": optimizer,
        "compiled loss": model._compile_loss,
        "strategy": strategy.extended,
        "per-replica spec": PerReplicaSpec(tf.TensorSpec(())),
        "epoch iterator": TFEpochIterator(distribute_strategy=strategy, x=data, shuffle=False),
    }


@pytest.mark.parametrize("row", NAMES, ids=lambda row: f"{row.owner} {row.name}")
def test_the_libraries_still_have_it(row, owners):
    if row.owner == "module keras":
        importlib.import_module(row.name)
    elif not row.owner.startswith("attribute"):  # which tests/data would find: a name that TensorFlow passes over
        assert hasattr(owners[row.owner], row.name)
