"""`keras-vit verify`: a bundle is checked again, where it stands."""

from pathlib import Path
from typing import Annotated

import typer

from keras_vit import export
from keras_vit.commands import import_keras
from keras_vit.commands.export import tabulate_reports
from keras_vit.console import Console
from keras_vit.export.verification import require_manifest


def verify_bundle(
    folder: Annotated[Path, typer.Argument(help="A folder that `keras-vit export` wrote.")],
) -> None:
    """Checks a bundle again, anywhere: its checksums, and every artefact in its runtime against stored examples.

    It shows that nothing was damaged or edited since the export. It cannot show who made a bundle: whoever makes one
    makes its checksums too. Artefacts that do more than compute are refused unopened; predict.py is not run.

    Example: keras-vit verify dist
    """
    require_manifest(folder)
    import_keras()
    notes = []
    reports = export.verify(folder, progress=notes.append)
    console = Console()
    console.print(tabulate_reports(reports, f"{folder}: every artefact computes what the model computed"))
    for line in notes:
        console.print(line, soft_wrap=True)
