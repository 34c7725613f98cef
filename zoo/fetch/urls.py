"""Reads an http or https address in one way: what is requested, cached and shown of it all come from this reading.

`urllib.parse` and `requests` accept more, and differ: an address that two programs understand differently could be
requested from one server and kept under the name of another.
"""

import dataclasses
import ipaddress
import re
from urllib.parse import unquote

from keras_vit.errors import DownloadError
from keras_vit.text import printable

MOST_CHARACTERS = 8192
PORTS = {"https": 443, "http": 80}
LABEL = "[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
GRAMMAR = re.compile(
    r"(?P<scheme>[Hh][Tt][Tt][Pp][Ss]?)://(?:(?P<user>[A-Za-z0-9._~!$&'()*+,;=:%-]*)@)?"
    rf"(?P<host>{LABEL}(?:\.{LABEL})*|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{{1,5}}))?"
    r"(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?(?:#.*)?"
)


def format_origin(scheme, host, port):
    return f"{scheme}://{host}" + (f":{port}" if port else "")


@dataclasses.dataclass(frozen=True)
class Url:
    """An http or https address as it is sent.

    Args:
        text: the whole address.
        scheme, host: in lower case; an IPv6 host in brackets.
        port: None for the scheme's own.
        path: percent-encoded.
        user: name and password before the "@", or "".
        query: what follows the "?", or "".
    """

    text: str = dataclasses.field(repr=False)
    scheme: str
    host: str
    port: int | None
    path: str
    user: str = dataclasses.field(repr=False)
    query: str = dataclasses.field(repr=False)

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return format_origin(self.scheme, self.host, self.port)

    @property
    def public(self) -> str:
        """The address without name, password and query, which may be secrets."""
        return self.origin + self.path


def is_host(host):
    """Whether it is a name, or an IP address in the one form that all programs read alike."""
    try:
        if host.startswith("["):
            ipaddress.IPv6Address(host[1:-1])
        elif re.fullmatch("[0-9]+|0[xX][0-9A-Fa-f]*", host.rpartition(".")[2]):
            ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return len(host) <= 253


def match_url(text):
    """The match of an address with the grammar; None for any other text, or for what can be read in two ways."""
    if text is None or len(text) > MOST_CHARACTERS or not text.isprintable() or re.search(r"[\s\\]", text):
        return None
    found = GRAMMAR.fullmatch(text)
    return found if found and is_host(found["host"]) and int(found["port"] or 1) in range(1, 65536) else None


def server(found):
    """(scheme, host, port) of a match, in lower case; port None for the scheme's own."""
    scheme, host, port = found["scheme"].lower(), found["host"].lower(), int(found["port"] or 0)
    return scheme, host, None if port in (0, PORTS[scheme]) else port


def has_dots(path):
    return any(unquote(name) in (".", "..") for name in (path or "").split("/"))


def public_form(text: str) -> str:
    """Any text that may be an address, fit to be shown: without what may be a name, a password or a signature.

    Stricter than `keras_vit.text.without_secrets`, which looks for addresses in a sentence and so ends them at a space.

    >>> public_form("https://me:secret@host/a.npz?signature=secret"), public_form("https://me:sec ret@host")
    ('https://host/a.npz', 'https://...')
    """
    if found := match_url(text):
        return format_origin(*server(found)) + (found["path"] or "/")
    scheme = re.match("[A-Za-z]{1,8}://", text)
    return f"{scheme[0] if scheme else ''}..." if "@" in text else printable(re.split("[?#]", text)[0][:200])


def read_url(text: str) -> Url:
    """The `Url` of an address, as `requests` sends it.

    Refused is what programs read differently: control characters, spaces, backslashes, hosts outside of ASCII (their
    xn-- form is read), numbers that stand for an IP address, and paths with "." and "..".

    Raises:
        DownloadError: for anything but a plain http or https address.

    >>> read_url("https://me:secret@Example.org:443/a.npz?key=1").public
    'https://example.org/a.npz'
    """
    import requests

    written = match_url(text)
    try:
        sent = requests.Request("GET", text).prepare().url if written else None
    except (requests.RequestException, ValueError):
        sent = None
    found = match_url(sent)
    if found is None or server(found) != server(written) or has_dots(written["path"]) or has_dots(found["path"]):
        raise DownloadError(
            f"{public_form(text)} is not an address that all programs read alike. Expected https://host/folder/file "
            'without spaces, control characters, backslashes and "..", with a host in ASCII.'
        )
    scheme, host, port = server(found)
    return Url(
        text=str(sent),
        scheme=scheme,
        host=host,
        port=port,
        path=found["path"] or "/",
        user=found["user"] or "",
        query=found["query"] or "",
    )
