"""The bar of a fetch on a terminal."""

import contextlib
import sys

from keras_vit.text import printable


@contextlib.contextmanager
def progress_bar(name, wanted):
    """Yields a function of (bytes so far, bytes in all) that draws on a terminal, or None where nobody watches."""
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from keras_vit.console import Console

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(printable(name), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
