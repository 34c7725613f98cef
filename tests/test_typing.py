"""What a type checker says of the installed package: it accepts all that the documents show, and finds mistakes."""

import ast
import collections
import pathlib
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile

import pytest
import snippets
from built_wheel import build_wheel

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
DOOR = ROOT / "keras_vit/__init__.py"
DOORS = {
    f"keras_vit.{path.parent.name}": path.parent
    for pattern in ("keras_vit/*/__init__.py*", "zoo/__init__.pyi", "export/__init__.pyi")
    for path in ROOT.glob(pattern)
}


def shown():
    """{name: Python source} of every snippet."""
    for path in PAGES:
        if code := snippets.from_markdown(path.read_text()):
            yield path.relative_to(ROOT).as_posix(), snippets.with_given(code)
    for path in sorted(ROOT.glob("examples/*.py")):
        yield path.relative_to(ROOT).as_posix(), path.read_text()
    yield "keras_vit", snippets.from_docstring("keras_vit", (), ast.get_docstring(ast.parse(DOOR.read_text())))
    for package, folder in DOORS.items():
        public = snippets.door(folder)
        for member, path in public.items():
            for name, text in snippets.docstrings(path, member):
                if ">>>" in text:
                    yield f"{package}.{name}", snippets.from_docstring(package, public, text)


SHOWN = dict(shown())
MISTAKES = {
    'keras_vit.zoo.load("ViT-B/16", image_sise=3)': 'Unexpected keyword argument "image_sise" for "load"',
    'keras_vit.zoo.load("ViT-B/16", image_size="large")': 'Argument "image_size" to "load" has incompatible type "str"',
    'keras_vit.export.convert(model, "x", quantise="int8")': 'Unexpected keyword argument "quantise" for "convert"',
    "training.recipe(3)": 'Argument 1 to "recipe" has incompatible type "int"; expected "str"',
    'training.recipee("finetune-pets")': 'Module has no attribute "recipee"; maybe "recipe',
    "training.Run(3)": 'Argument 1 to "Run" has incompatible type "int"',
}
PRELUDE = "import keras\nimport keras_vit\nfrom keras_vit import training\nmodel = keras.Sequential()\n"


def install(folder):
    """The interpreter of a new environment that has the package's wheel, and nothing that it needs."""
    venv.create(folder / "venv")
    with zipfile.ZipFile(build_wheel(folder)) as archive:
        archive.extractall(sysconfig.get_path("purelib", "venv", {"base": str(folder / "venv")}))
    return folder / "venv" / "bin" / "python"


@pytest.fixture(scope="module")
def complaints(tmp_path_factory):
    """{name of a snippet, or mistake: mypy's lines about it}, of one run over all."""
    folder = tmp_path_factory.mktemp("typing")
    names = [*SHOWN, *MISTAKES]
    for i, code in enumerate([*SHOWN.values(), *(PRELUDE + line for line in MISTAKES)]):
        (folder / f"snippet_{i}.py").write_text(code)
    # Keras, TensorFlow and numpy are not there, and so Any: reading numpy's stubs alone would take as long as the rest.
    options = ["--config-file=", "--ignore-missing-imports", "--check-untyped-defs", "--no-error-summary"]
    command = [sys.executable, "-m", "mypy", *options, "--cache-dir=cache", f"--python-executable={install(folder)}"]
    files = [f"snippet_{i}.py" for i in range(len(names))]
    done = subprocess.run([*command, *files], cwd=folder, capture_output=True, text=True)
    assert not done.stderr, done.stderr
    lines = collections.defaultdict(list)
    for number, line in re.findall(r"^snippet_(\d+)\.py:(.*)$", done.stdout, re.M):
        lines[names[int(number)]].append(line)
    return lines


@pytest.mark.parametrize("name", SHOWN)
def test_what_is_shown_is_accepted(complaints, name):
    assert complaints[name] == []


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_found(complaints, line):
    (found,) = [said for said in complaints[line] if ": error: " in said]
    assert MISTAKES[line] in found


def test_every_page_and_example_is_read():
    """A snippet that is not recognised would never be checked."""
    assert {"README.md", "docs/deploy.md", "docs/models.md", "docs/tpu.md", "examples/own_photos.py"} <= set(SHOWN)
    calls = {
        ast.unparse(node.func)
        for code in SHOWN.values()
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call)
    }
    assert {"keras_vit.zoo.load", "keras_vit.export.convert", "keras_vit.export.bundle", "training.strategy"} <= calls
