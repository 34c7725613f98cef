"""`keras-vit serve`: serves a bundle's page, on this machine alone."""

import contextlib
import os
import re
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated

import typer

from keras_vit.console import say
from keras_vit.errors import ExportError
from keras_vit.export.web import FOLDER as PAGE

LOOPBACK = "127.0.0.1"
INDEX = "index.html"
# No other site can read this page; the first two headers also let WebAssembly use several threads.
HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".wasm": "application/wasm",
    ".png": "image/png",
    ".jpg": "image/jpeg",
}


class PageHandler(SimpleHTTPRequestHandler):
    """Serves the files of one folder to requests whose Host is a name of this machine.

    Any other Host may come from a site whose name was made to resolve to this address (DNS rebinding).
    """

    extensions_map = TYPES
    server_version, sys_version = "keras-vit", ""
    server: ThreadingHTTPServer

    def handle(self):
        with contextlib.suppress(ConnectionError):  # the browser closed the connection
            super().handle()

    def send_head(self):
        host = re.fullmatch(r"(localhost|127\.0\.0\.1)(:(\d{1,5}))?", self.headers.get("Host", ""), re.IGNORECASE)
        if not host or int(host[3] or 80) != self.server.server_port:
            return self.send_error(HTTPStatus.MISDIRECTED_REQUEST, "This server answers only requests for localhost")
        path, root = Path(self.translate_path(self.path)), Path(self.directory)
        path = path / INDEX if path == root else path
        if not os.path.isfile(path) or path.is_symlink() or not path.resolve().is_relative_to(root.resolve()):
            return self.send_error(HTTPStatus.NOT_FOUND)
        return super().send_head()

    def end_headers(self):
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, *_):
        pass


def find_page(folder: Path) -> Path:
    """The folder of the page: `folder`/web of a bundle, or the folder itself."""
    for page in (folder / PAGE, folder):
        if (page / INDEX).is_file() and (page / "model.json").is_file():
            return page
    there = "there is no such folder" if not folder.is_dir() else "it has no page"
    raise ExportError(f"{folder} cannot be served: {there}. Expected a bundle made by keras-vit export MODEL --web.")


def open_server(folder: Path, port: int) -> ThreadingHTTPServer:
    """A server of the folder's page on 127.0.0.1, to be started by `serve_forever`; port 0 takes any free one."""
    page = find_page(folder)
    try:
        return ThreadingHTTPServer((LOOPBACK, port), partial(PageHandler, directory=str(page.resolve())))
    except OSError as error:
        raise ExportError(
            f"Port {port} of this machine cannot be used: {error.strerror}. Choose another with --port, or 0 for any."
        ) from error


def serve_page(
    folder: Annotated[Path, typer.Argument(help="A bundle with a page: keras-vit export MODEL --web.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of this machine; 0 takes any free port.")] = 8000,
) -> None:
    """Serves the page of a bundle to browsers on this machine, and to no others, until Ctrl-C.

    Example: keras-vit serve dist --port 8000
    """
    with open_server(folder, port) as server:
        say(f"Open http://{LOOPBACK}:{server.server_address[1]}/ in a browser. Ctrl-C ends it.")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            say("The page is no longer served.")
