"""The Python that the documents and docstrings show, as modules that a type checker can read."""

import ast
import builtins
import doctest
import re
import textwrap

PYTHON = re.compile(r"^(import|from) \w|^\w+ = |\bkeras_vit(\.\w+)+\(", re.M)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
INDENTED = re.compile(r"(?:^(?:    .*)?\n)+", re.M)

# What a snippet may take as given: its reader has these.
GIVEN = {
    "Path": "from pathlib import Path",
    "arrays": 'import numpy as np; arrays = {"kernel": np.zeros(3)}',
    "batches": 'import keras_vit; batches = keras_vit.data.load("digits").train(32)',
    "examples": 'import keras_vit; examples = keras_vit.data.load("digits")',
    "held_out": 'import keras_vit; held_out = keras_vit.data.load("digits", "validation").evaluation(64)',
    "images": "import numpy as np; images = np.zeros((2, 224, 224, 3))",
    "keras": "import keras",
    "keras_vit": "import keras_vit",
    "labels": "import numpy as np; labels = np.zeros(2)",
    "model": 'import keras_vit; model = keras_vit.zoo.load("ViT-B/16")',
    "np": "import numpy as np",
    "numpy": "import numpy",
    "ops": "from keras import ops",
    "preprocessing": "import keras_vit; preprocessing = keras_vit.models.Preprocessing()",
    "recipe": 'import keras_vit; recipe = keras_vit.training.recipe("finetune-pets")',
    "tf": "import tensorflow as tf",
    "train": 'import keras_vit; train = keras_vit.data.load("digits").train(32)',
    "x": "import numpy as np; x = np.zeros((2, 17, 64))",
    "zoo": "from keras_vit import zoo",
}


def names_of(statement):
    """(names that a statement reads, those that it binds, those of its functions' arguments)."""
    nodes = list(ast.walk(statement))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    aliases = [alias for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names]
    bound = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    bound |= {(alias.asname or alias.name).split(".")[0] for alias in aliases}
    return {node.id for node in names} - bound, bound, {node.arg for node in nodes if isinstance(node, ast.arg)}


def free_names(code):
    """Names that the code reads before it binds them, sorted."""
    free, known = set(), set(dir(builtins))
    for statement in ast.parse(code).body:
        read, bound, arguments = names_of(statement)
        if isinstance(statement, ast.Assign):
            read |= names_of(ast.Expr(statement.value))[0]
        free |= read - known - arguments
        known |= bound
    return sorted(free)


def with_given(code):
    """The code after the lines that bring what it takes as given."""
    return "\n".join([*(GIVEN[name] for name in free_names(code) if name in GIVEN), code])


def from_markdown(text):
    """All Python blocks of a page, fenced and indented, as one module: later blocks use names of earlier ones."""
    blocks = [body for language, body in FENCE.findall(text) if language in ("", "python")]
    blocks += [textwrap.dedent(body) for body in INDENTED.findall(FENCE.sub("", text))]
    return "\n".join(block for block in blocks if PYTHON.search(block))


def door(folder):
    """{public name: file that defines it} of a package, from its stub where it has one."""
    stub = folder / "__init__.pyi"
    tree = ast.parse((stub if stub.exists() else folder / "__init__.py").read_text())
    own = f"keras_vit.{folder.name}."
    return {
        alias.name: folder.joinpath(*node.module.removeprefix(own).split(".")).with_suffix(".py")
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module and (node.level or node.module.startswith(own))
        for alias in node.names
    }


def docstrings(path, name):
    """(dotted name, docstring) of a function or class in a file, and of the class's public methods."""
    kinds = ast.ClassDef | ast.FunctionDef
    for node in (node for node in ast.parse(path.read_text()).body if isinstance(node, kinds) and node.name == name):
        yield name, ast.get_docstring(node) or ""
        for member in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(member, ast.FunctionDef) and not member.name.startswith("_"):
                yield f"{name}.{member.name}", ast.get_docstring(member) or ""


def from_docstring(package, public, text):
    """The `>>>` examples of a docstring as a module; the package's own names are given, as in a doctest."""
    code = "".join(example.source for example in doctest.DocTestParser().get_examples(text))
    rebound = set().union(*(names_of(statement)[1] for statement in ast.parse(code).body))
    own = [name for name in free_names(code) if name in public and name not in rebound]
    rest = [GIVEN[name] for name in free_names(code) if name in GIVEN and name not in own]
    return "\n".join([*(f"from {package} import {name}" for name in own), *rest, code])
