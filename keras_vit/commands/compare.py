"""`keras-vit compare`: compares exported files and models on your images, and recommends one."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from keras_vit import data
from keras_vit.commands.evaluate import choose_split
from keras_vit.commands.parsing import complete_place
from keras_vit.commands.shared import BatchSize, Data, Json, Like, ToFolder, import_keras, require_model, show_count
from keras_vit.console import Console, make_table, say
from keras_vit.data.datasets.schemes import require_dataset
from keras_vit.errors import ConfigError
from keras_vit.evaluation.device.process import NotMeasured, run_apart
from keras_vit.evaluation.scores import Candidate, Share, draw_comparison, recommend, size_on_disk
from keras_vit.files import write_whole
from keras_vit.training.runs.run_folder import model_of

NAMES = ("comparison.json", "comparison.png")


def list_candidates(models: list[str]) -> list[str]:
    """The candidates: each artefact of a bundle, everything else as it is given."""
    from keras_vit.export.opening import DESCRIPTION
    from keras_vit.export.proof.bundled import read_model_json

    found = []
    for name in models:
        folder = Path(os.path.expanduser(name))
        entries = read_model_json(folder)["artefacts"] if (folder / DESCRIPTION).is_file() else None
        found += [name] if entries is None else [str(folder / entry["file"]) for entry in entries]
    return list(dict.fromkeys(found))


def measure(name: str, dataset: str, split: str, batch_size: int, like: str | None, report: Any) -> Candidate:
    """Measures a candidate; in a separate process, for its memory."""
    import_keras()
    import numpy as np

    from keras_vit import inference
    from keras_vit.evaluation.device.measuring import peak_memory, seconds_per_call
    from keras_vit.evaluation.evaluating import predict_examples

    before = peak_memory()
    model = inference.open_classifier(name, like)
    image = np.zeros((1, *model.preprocessing.image_size, len(model.preprocessing.mean)), "float32")

    def answer():
        return np.asarray(model.predict_on_batch(image))

    answer()
    memory, seconds = peak_memory() - before, min(seconds_per_call(answer) for _ in range(3))
    names, found = predict_examples(model, data.load(dataset, split), batch_size, tell=report)
    top1, size = Share(int((found.ranks == 0).sum()), len(found.ranks)), size_on_disk(model_of(name))
    return Candidate(name, top1, np.array(names)[found.predicted], size, 1e3 * seconds, memory)


def tabulate(candidates):
    """A line for each candidate, in the order given."""
    table = make_table(None, "", "top-1", "95 % interval", "agreement", "MB", "ms", "memory, MB")
    for c in candidates:
        low, high = c.top1.interval
        size = "" if c.bytes is None else f"{c.bytes / 1e6:,.2f}"
        shares = f"{c.top1.value:.1%}", f"{low:.1%} to {high:.1%}", f"{c.agreement(candidates[0]):.1%}"
        table.add_row(c.name, *shares, size, f"{c.milliseconds:,.1f}", f"{c.memory / 1e6:,.0f}")
    return table


def choose_common_split(dataset, models):
    """`choose_split` for all of several models: the images held out, if one was trained on the others."""
    choices = [choose_split(dataset, name) for name in models]
    return min(choices, key=lambda choice: choice[0] != "validation")


def compare(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Bundles, exported files, runs, checkpoints or names; two candidates or more in all. Every artefact "
            "of a bundle is a candidate.",
            autocompletion=complete_place,
        ),
    ],
    dataset: Data,
    split: Annotated[
        str | None,
        typer.Option(
            help="The images to compare on: train, validation or test; by default as in evaluate. If any of the "
            "runs was trained on a folder without a subfolder test, the images that it held out are used."
        ),
    ] = None,
    out: Annotated[
        Path | None, ToFolder(help=f"A folder for {' and '.join(NAMES)}; existing ones are replaced.")
    ] = None,
    batch_size: BatchSize = 64,
    like: Like = None,
    as_json: Json = False,
) -> None:
    """Compares exported files and models on your images, and recommends one.

    For each candidate it measures the top-1 accuracy with its 95 % interval, the share of images that it classifies
    like the first candidate, the size, and the milliseconds and memory for one image on this machine, in a separate
    process. It recommends the smallest file that loses less than half a point to the most accurate.

    Example: keras-vit compare runs/1 dist dist-int8 --data folder:test --out report
    """
    for name in models:
        require_model(name)
    require_dataset(dataset)
    names = list_candidates(models)
    if len(names) < 2:
        raise ConfigError(f"Expected two candidates or more. Received: {', '.join(names)}. Name another file or run.")
    import_keras()
    if split is None:
        split, said = choose_common_split(dataset, models)
        if said:
            print(said, file=sys.stderr)
    examples = data.load(dataset, split)
    if examples.multi_label or examples.masked:
        raise ConfigError(f"The images of {dataset} have several classes each, but accuracy needs one per image.")
    candidates = []
    for name in names:
        with data.data_errors(), show_count(f"images, {Path(name).name}", examples.num_examples) as tell:
            try:
                candidates.append(run_apart(measure, name, dataset, split, batch_size, like, hear=tell))
            except NotMeasured as error:
                raise ConfigError(f"{name} cannot be compared: {error}") from None
    chosen, reason = recommend(candidates)
    facts = {"candidates": [c.as_dict(candidates[0]) for c in candidates], "take": chosen.name, "reason": reason}
    if as_json:
        print(json.dumps(facts))
    else:
        Console().print(tabulate(candidates))
        say(reason)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        with write_whole(out / NAMES[0]) as path:
            path.write_text(json.dumps(facts, indent=1) + "\n", "utf-8")
        with write_whole(out / NAMES[1]) as path:
            draw_comparison(candidates, path)
