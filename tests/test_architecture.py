"""The shape of the project: what a wheel ships, who imports whom, what an import costs."""

import ast
import configparser
import importlib
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest
from built_wheel import build_wheel

from keras_vit.zoo.names.rows import checkpoints

ROOT = pathlib.Path(__file__).parent.parent
FOLDERS = {"keras_vit.zoo": ROOT / "zoo", "keras_vit.export": ROOT / "export"}

BELOW = {"images", "distribution", "layers", "models"}
# Which rooms a room may import, beside the modules at the root: errors, files, ...
MAY_IMPORT = {
    "images": set(),
    "distribution": set(),
    "layers": {"distribution"},
    "models": {"images", "distribution", "layers"},
    "inspection": BELOW,
    "data": BELOW,
    "masked_patches": BELOW | {"data"},
    "evaluation": BELOW | {"data", "masked_patches"},
    "training": BELOW | {"data", "masked_patches", "zoo"},
    "trainers": BELOW | {"data", "masked_patches", "evaluation", "training", "zoo"},
    "zoo": BELOW,
    "export": {"images"},
    "inference": BELOW | {"data", "training", "zoo", "export"},
    "commands": BELOW | {"inspection", "data", "evaluation", "inference", "trainers", "training", "zoo", "export"},
}
# What a room may import of another one besides: onnxruntime-web is fetched as weights are.
BESIDES = {"export": ("keras_vit.zoo.fetch", "keras_vit.zoo.names.rows")}


def packages():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    return config["options"]["packages"].split()


def folder(package):
    return ROOT.joinpath(*re.sub(r"^keras_vit\.(zoo|export)\b", r"\1", package).split("."))


def imports(path):
    """The modules that a file imports, relative ones as '.'."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." if node.level else node.module
            if not node.level:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_wheel_ships_one_top_level_package(tmp_path):
    wheel = build_wheel(tmp_path)
    assert wheel.name.startswith("keras_vit_zoo-")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"keras_vit"}
    for package in packages():
        sources = {path.name for path in folder(package).glob("*.py*")}
        shipped = {name.rpartition("/")[2] for name in names if name.rpartition("/")[0] == package.replace(".", "/")}
        assert sources <= shipped, package
    assert {"keras_vit/zoo/registry.json", "keras_vit/py.typed"} <= set(names)
    shipped = [row.file for row in checkpoints() if row.file]
    assert shipped and {f"keras_vit/zoo/weights/{name}" for name in shipped} <= set(names)
    assert {f"keras_vit/zoo/weights/{pathlib.Path(name).stem}.md" for name in shipped} <= set(names)
    assert wheel.stat().st_size < 15e6
    assert {"keras_vit/zoo/registry.json", "keras_vit/py.typed", "keras_vit/export/web/page.js"} <= set(names)


def test_every_package_is_listed():
    found = {
        ".".join((*name.split("."), *path.parent.relative_to(place).parts))
        for name, place in {"keras_vit": ROOT / "keras_vit", **FOLDERS}.items()
        for path in place.glob("**/__init__.py")
    }
    assert set(packages()) == found


def test_no_file_is_too_small_to_be_one():
    """But for the doors: `__init__`, `__main__`, and the version."""
    lines = {path: path.read_text().count("\n") for name in packages() for path in folder(name).glob("[!_]*.py")}
    assert [str(path) for path, count in lines.items() if count < 40] == []


def test_every_requirement_has_a_floor():
    """`.ci/lowest` installs and tries these; below them are known faults (urllib3, requests, pillow, filelock)."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    extras = config["options.extras_require"]
    names = ("cpu", "gpu", "tpu", "train", "export", "data", "plots", "search", "test")
    stated = "\n".join([config["options"]["install_requires"], *(extras[name] for name in names)])
    whole = f"{config['metadata']['name']}[train,export,data,plots,search]"
    lines = [line for line in stated.splitlines() if line not in ("", whole)]
    assert [line for line in lines if ">=" not in line and "==" not in line] == []
    floors = {
        name.strip(): tuple(map(int, floor.split(".")))
        for name, _, floor in (x.partition(">=") for x in lines)
        if floor
    }
    least = {"urllib3": (2, 7), "requests": (2, 33), "pillow": (12, 3), "filelock": (3, 20, 3), "onnx": (1, 21)}
    assert all(floors[name] >= version for name, version in least.items())


def test_actions_are_pinned_and_may_only_read():
    workflow = (ROOT / ".github/workflows/ci.yml").read_text()
    uses = [line.split("uses:")[1] for line in workflow.splitlines() if "uses:" in line]
    assert uses and all(re.fullmatch(r" [\w./-]+@[0-9a-f]{40} # v\S+", use) for use in uses)
    assert "\npermissions: {}\n" in workflow and workflow.count("permissions:") == workflow.count("runs-on:") + 1
    assert set(re.findall(r"contents: (\w+)", workflow)) == {"read"} and ": write" not in workflow


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_who_imports_whom(room):
    for path in folder(f"keras_vit.{room}").glob("**/*.py"):
        for module in imports(path):
            assert module != ".", f"{path} has a relative import"
            other = module.split(".")[1] if module.startswith("keras_vit.") else room
            if other in MAY_IMPORT and other != room and not module.startswith(BESIDES.get(room, ("-",))):
                assert other in MAY_IMPORT[room], f"{path} imports {module}"


FRAMEWORKS = {"tensorflow", "jax", "torch"}


@pytest.mark.parametrize("room", ["layers", "models", "inspection"])
def test_layers_and_models_know_only_keras(room):
    """But for the gradients of the layers, which are TensorFlow's way to say what the layers say in `keras.ops`."""
    for path in folder(f"keras_vit.{room}").glob("**/*.py"):
        assert path.name == "gradients.py" or not {m.split(".")[0] for m in imports(path)} & FRAMEWORKS, path


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT.parent)
    assert done.returncode == 0, done.stderr
    return done.stdout


HEAVY = "{'keras', 'tensorflow', 'matplotlib', 'onnx', 'scipy', 'sklearn', 'faiss'} & set(sys.modules)"


@pytest.mark.parametrize(
    "code",
    [
        "import keras_vit",
        "import keras_vit; keras_vit.zoo.list('R50*'); keras_vit.zoo.info('ViT-B/16'); keras_vit.export",
        "import keras_vit.models as m; m.VARIANTS",
        "from keras_vit import training; training.RECIPES; training.recipe('finetune-pets', batch_size=32)",
        "from typer.testing import CliRunner; from keras_vit.cli import app; r = CliRunner().invoke(app, ['list']); "
        "assert r.exit_code == 0, r.output; rooms = {'export', 'inference', 'trainers', 'data'}; "
        "assert not {f'keras_vit.{room}' for room in rooms} & set(sys.modules)",
    ],
)
def test_looking_around_imports_nothing_heavy(code):
    assert run(f"import sys; {code}; print({HEAVY})").strip() == "set()"


def test_a_folder_without_init_is_imported_as_without_this_package(tmp_path):
    """As where only JAX is installed, and a folder beside the script is called tensorflow."""
    (tmp_path / "tensorflow").mkdir()
    code = f"import keras_vit, sys; sys.path[:] = [{str(tmp_path)!r}]; import tensorflow; print(*tensorflow.__path__)"
    assert run(code).strip() == str(tmp_path / "tensorflow")


@pytest.mark.parametrize("package", packages())
def test_what_is_public_is_shown(package):
    """As TAB shows it: the names that are imported when they are first used, and the others."""
    module = importlib.import_module(package)
    assert set(getattr(module, "__all__", ())) <= set(dir(module))


FIRST = (
    "keras",
    "keras_vit",
    "keras_vit.layers",
    "keras_vit.models.classifier",
    "keras_vit.distribution.replicas",
    "keras_vit.models.resnet",
    "keras_vit.models.vit",
    "keras_vit.models.axial.vit",
    "keras_vit.models.axial.resnet",
    "keras_vit.zoo.saving",
    "keras_vit.training.optimizers",
)


EACH_FIRST = """
import importlib, os, sys
import tensorflow  # what takes time; it imports Keras, which each child forgets

for first in {firsts}:
    if os.fork() == 0:
        for name in [name for name in sys.modules if name.split(".")[0] == "keras"]:
            del sys.modules[name]
        importlib.import_module(first)
        import keras, keras_vit
        find = keras.saving.get_registered_object
        print(first, *(find("keras_vit>" + name).__name__ for name in {names}), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.slow
def test_classes_are_registered_whatever_is_imported_first():
    names = ("VisionTransformer", "ResNet", "AxialResNet", "MLP", "AdamW", "WarmupCosine", "SoftmaxLoss")
    printed = run(EACH_FIRST.format(firsts=FIRST, names=names)).splitlines()
    assert printed == [" ".join((first, *names)) for first in FIRST]


def test_a_bare_checkout_has_every_room():
    """Two links, which an editor follows and no wheel ships."""
    for name in ("zoo", "export"):
        assert (ROOT / "keras_vit" / name).resolve() == ROOT / name
