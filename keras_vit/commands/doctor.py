"""`keras-vit doctor`: tries a model's exports by Keras and by this package, and writes a file that works."""

import dataclasses
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from keras_vit.commands.export import COMMAND, Format
from keras_vit.commands.shared import import_keras, show_count, try_file, try_folder
from keras_vit.console import Console, make_table, say
from keras_vit.errors import ConfigError, ExportError
from keras_vit.evaluation.device.process import NotMeasured, Process
from keras_vit.export.formats import FORMATS, USUAL, format_named

__all__ = ["COMMAND", "diagnose"]


def require_patient(name):
    if name.endswith(".keras"):
        if not Path(name).is_file():
            raise ConfigError(f"There is no file {name}. Expected a .keras file, or package.module:function.")
    elif name.count(":") != 1 or not all(part.isidentifier() for part in name.replace(":", ".").split(".")):
        raise ConfigError(f"Expected a .keras file, or a function as package.module:function. Received: {name}.")


def try_either(out: Path | None) -> Path | None:
    return try_folder(out) if out and out.is_dir() else try_file(out)


def place_files(out, formats):
    """{format: path of its file}; nothing may exist there."""
    rows, out = [format_named(name) for name in formats], out and Path(os.path.expanduser(out))
    if out and out.suffix in {row.suffix for row in FORMATS if row.suffix} and not out.is_dir():
        if [row.suffix for row in rows] != [out.suffix]:
            raise ConfigError(f"{out} cannot hold {', '.join(formats)}: give a folder, or its format alone by --to.")
        places = {formats[0]: out}
    else:
        places = {row.name: Path(out or "", f"model{row.suffix}" if row.suffix else row.name) for row in rows}
    for place in places.values():
        if out and place.exists():
            raise ConfigError(f"{place} exists already. Choose another --out, or remove it.")
    return places


def describe(patient, seconds):
    """Facts about the model itself; "milliseconds" and "rounding" are None if it cannot be compiled."""
    from keras_vit.export import doctor

    with Process(quiet=True) as process:
        try:
            about = process.call(doctor.describe, patient, limit=seconds)
        except NotMeasured as error:
            what = f"{patient.name} gives no model: {error}. Try it in Python, or allow more --seconds."
            raise ConfigError(what) from None
        if "refused" in about:
            raise ConfigError(about["refused"])
        try:
            return about | process.call(doctor.measure, patient, limit=seconds)
        except NotMeasured:
            return about | {"milliseconds": None, "rounding": None}


def examine_apart(patient, format_name, by, path, seconds):
    """The `Finding` of one export in a separate process; a crash or hang is a finding, too."""
    from keras_vit.export import doctor

    with Process(quiet=True) as process:

        def ask(function, *arguments):
            try:
                return process.call(function, *arguments, limit=seconds)
            except NotMeasured as error:
                process.start()
                if function is doctor.name_layer:
                    raise
                return doctor.Finding(format_name, by, "broken off", error=f"{error}.".capitalize())

        found, layer = ask(doctor.examine_patient, patient, format_name, by, str(path)), None
        if "took longer" in str(found.error):
            layer = "The first wrong layer was not searched for, since that could take as long for each layer."
        elif found.result != "right":
            try:
                layer = doctor.find_wrong_layer(ask, patient, format_name, by)
            except (NotMeasured, ExportError) as error:
                layer = f"The first wrong layer could not be found: {error}"
        return dataclasses.replace(found, layer=layer)


def tabulate(findings):
    table = make_table(None, "", "result", "differs by", "MB", "nodes", "ms")
    for x in findings:
        figures = ((x.difference, ".0e"), (x.bytes and x.bytes / 1e6, ",.2f"), (x.nodes, ","), (x.milliseconds, ",.1f"))
        table.add_row(f"{x.format}, {x.by}", x.result, *("" if n is None else format(n, how) for n, how in figures))
    return table


def move_files(taken, places, folder):
    """Moves the files of {format: who exported it} to their places."""
    for name, by in taken.items():
        places[name].parent.mkdir(parents=True, exist_ok=True)
        for path in Path(folder, name, by).iterdir():
            shutil.move(path, places[name].parent / path.name)


def diagnose(
    model: Annotated[
        str,
        typer.Argument(
            help="A .keras file, or a function without arguments that builds a model, package.module:function. "
            "Also as `--model`."
        ),
    ],
    to: Annotated[
        list[Format] | None, typer.Option(help=f"The formats to try: --to onnx tflite. By default {', '.join(USUAL)}.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(callback=try_either, help="A folder for a working file of each format, or the path of one file."),
    ] = None,
    imports: Annotated[
        list[str] | None,
        typer.Option("--import", help="A package to import first, for a .keras file with layers of it."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="Time limit of each export, in seconds.")] = 300,
    as_json: Annotated[bool, typer.Option("--json", help="Print all findings as JSON.")] = False,
) -> None:
    """Tries the exports of Keras and of this package on any Keras model, and writes files that work.

    Each export runs in a separate process. Its file is loaded in its own runtime and compared with the model on seeded
    inputs. If it fails or differs, exports of the model's first layers find the layer at fault. Code in a .keras file
    is never run. The exit code is 0 if there is a correct file of each format.

    Example: keras-vit doctor mine.keras --to onnx tflite --out exported
    """
    require_patient(model)
    formats = list(dict.fromkeys(str(name) for name in to or USUAL))
    places = place_files(out, formats)
    sys.path.append(os.getcwd())
    import_keras(find_devices=False)
    from keras_vit.export import doctor
    from keras_vit.export.proof.parity import choose_kind

    patient, findings = doctor.Patient(model, tuple(imports or ())), []
    about = describe(patient, seconds)
    kinds = [(name, by) for name in formats for by in (doctor.KERAS, doctor.OURS)]
    kinds = [(name, by) for name, by in kinds if by == doctor.OURS or name in doctor.KERAS_FORMATS]
    with tempfile.TemporaryDirectory() as work, show_count("exports", len(kinds)) as tell:
        for name, by in kinds:
            path = Path(work, name, by, places[name].name)
            path.parent.mkdir(parents=True)
            findings.append(examine_apart(patient, name, by, path, seconds))
            tell(len(findings))
        taken = {x.format: x.by for x in findings if x.result == "right"}  # ours comes after Keras'
        if out:
            move_files(taken, places, work)
    files = {name: str(places[name]) for name in taken if out}
    if as_json:
        print(json.dumps({**about, "findings": list(map(dataclasses.asdict, findings)), "take": taken, "files": files}))
    else:
        console = Console()
        takes = f"the model takes {about['milliseconds']:.1f} ms" if about["milliseconds"] else "compiled, it fails"
        console.print(f"{about['parameters']:,} parameters; {takes} for a batch.")
        if (about["rounding"] or 0) > choose_kind(None, format_named("onnx")).max_rel_diff:
            itself = f"Compiled, the model differs from itself by {about['rounding']:.0e}"
            console.print(f"{itself}: it amplifies rounding, and no file can be closer.")
        console.print(tabulate(findings))
        for x in findings:
            if x.error:
                say(f"{x.format} by {x.by} {x.result}: {x.error} {x.layer or ''}")
        for name, by in taken.items():
            say(f"Take {name} by {by}{f': {files[name]}' if files else ''}.")
    if missing := [name for name in formats if name not in taken]:
        raise ConfigError(f"Neither Keras nor keras-vit makes a correct file of this model in: {', '.join(missing)}.")
