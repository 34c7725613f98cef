"""The site: README, the pages of docs/, the reference and a live page, with search. Needs the extras [cpu] and [docs].

sphinx-build -W -c docs . site
"""

import shutil
import tempfile
from pathlib import Path

import keras_vit

LIVE = "ViT-Mini/4:fashion-mnist"

CHAPTERS = {
    "Begin": ("docs/start", "docs/tutorial", "docs/finetuning", "docs/training"),
    "Models": ("docs/models", "zoo/weights/*", "docs/family", "docs/coming_from", "docs/any_model"),
    "Deploy": ("docs/deploy", "docs/bundles", "docs/browsers", "docs/exports_in_depth"),
    "Look inside": ("docs/features", "docs/experiments", "docs/paper_in_miniature", "docs/performance"),
    "Scale": ("docs/tpu", "docs/backends"),
    "Errors": ("docs/errors/index", "docs/errors/*"),
    "Reference": ("docs/reference/*",),
    "Project": ("CHANGELOG", "CONTRIBUTING", "SECURITY"),
}

project, author, release = "Keras ViT", "the authors of Keras ViT", keras_vit.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/errors/*.md", "docs/reference/*.md", "zoo/weights/*.md"]
exclude_patterns = ["docs/private_names.md"]
smartquotes = False  # messages stay as they are pasted
html_theme, html_title = "furo", f"Keras ViT {release}"
html_extra_path = ["site"]
myst_heading_anchors = 4
myst_enable_extensions = ["html_image"]
default_role = "code"
autodoc_typehints = "description"
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
napoleon_use_ivar = True
napoleon_custom_sections = [("Call arguments", "params_style")]


def add_contents(app, name, source):
    """The navigation of the site, which README shows as its list "To read on"."""
    if name == root_doc:
        for caption, pages in CHAPTERS.items():
            lines = "\n".join(f"/{page}" for page in pages)
            source[0] += f"\n\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {caption}\n\n{lines}\n```\n"


def add_live_page(app, exception):
    """live/, the page of a model that ships, which docs/browsers.md shows."""
    if exception is None and app.builder.name == "html":
        with tempfile.TemporaryDirectory() as folder:
            model = keras_vit.zoo.load(LIVE)
            keras_vit.export.bundle(model, folder, ("onnx",), web=True, metadata={"name": LIVE})
            shutil.copytree(Path(folder) / "web", Path(app.outdir) / "live", dirs_exist_ok=True)


def setup(app):
    app.connect("source-read", add_contents)
    app.connect("build-finished", add_live_page)
