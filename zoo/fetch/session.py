"""Requests to the server that was named, and to those it leads to over https; never back to this machine's networks."""

import contextlib
import ipaddress
import os
import re
from urllib.parse import urljoin

import requests
from requests.adapters import HTTPAdapter
from requests.utils import get_auth_from_url
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from keras_vit.errors import DownloadError
from keras_vit.text import printable
from keras_vit.zoo.fetch import settings
from keras_vit.zoo.fetch.urls import read

REDIRECTS = 10
INTERNET, LOOPBACK = "the internet", "this machine"


class Misled(Exception):
    """A request that must not be sent; the message is a sentence."""


def network(address):
    """Which network an IP address is on, as text."""
    ip = ipaddress.ip_address(address.strip("[]").partition("%")[0])
    ip = getattr(ip, "ipv4_mapped", None) or getattr(ip, "sixtofour", None) or ip
    if ip.is_loopback or ip.is_unspecified:
        return LOOPBACK
    if ip.is_link_local:
        return "the local link"
    return INTERNET if ip.is_global else "a private network"


def network_of_name(host):
    """The same of a host as it is written; None where only a look-up tells."""
    if host == "localhost" or host.endswith(".localhost"):
        return LOOPBACK
    with contextlib.suppress(ValueError):
        return network(host)


def is_loopback(url):
    """Whether it is this machine by its plain names, to which nothing goes over a wire."""
    return re.fullmatch(r"localhost|127\.[0-9.]+|\[::1\]", url.host) is not None


class Trail:
    """The networks that a request may reach: the one of the address that was named, and the internet."""

    def __init__(self, asked):
        self.asked, self.allowed, self.redirected = asked, {INTERNET, network_of_name(asked.host)}, False

    def require(self, found, host):
        if not self.redirected:
            self.allowed.add(found)
        elif found not in self.allowed:
            raise Misled(f"{self.asked.public} leads to {host}, which is on {found}; it is not followed there.")

    def require_connected(self, sock, host):
        """Looks at where a connection has come out, which no name can hide."""
        there, here = sock.getpeername()[0], sock.getsockname()[0]
        self.require(LOOPBACK if there == here else network(there), host)


def watched(pool, trail):
    """The kind of connection pool whose connections are looked at before anything is asked over them."""

    class Connection(pool.ConnectionCls):
        def connect(self):
            super().connect()
            trail.require_connected(self.sock, self.host)

    return type(pool.__name__, (pool,), {"ConnectionCls": Connection})


class Watched(HTTPAdapter):
    """Connections that stay on a trail. Those through a proxy end at the proxy, which the user has chosen."""

    def __init__(self, trail):
        self.trail = trail
        super().__init__()

    def init_poolmanager(self, *args, **kwargs):
        super().init_poolmanager(*args, **kwargs)
        pools = {"http": HTTPConnectionPool, "https": HTTPSConnectionPool}
        self.poolmanager.pool_classes_by_scheme = {name: watched(pool, self.trail) for name, pool in pools.items()}


def as_it_is(request):
    """Adds nothing to a request: `requests` would add what ~/.netrc has for the host, or for all hosts."""
    return request


class Session(requests.Session):
    """A session for one file: an address, and where its server leads."""

    def __init__(self, url):
        super().__init__()
        self.trail = Trail(url)
        self.trust_env = not is_loopback(url)  # no proxy leads back to this machine
        for scheme in ("https://", "http://"):
            self.mount(scheme, Watched(self.trail))
        self.headers.update({"Accept-Encoding": "identity", "User-Agent": "keras-vit"})

    def follow(self, headers):
        """The responses from the first to the one that leads nowhere else, whose body is not yet read."""
        url, found = self.trail.asked, []
        for _ in range(REDIRECTS):
            self.trail.redirected = bool(found)
            response = self.ask(url, headers)
            found.append(response)
            target = response.headers.get("Location")
            if response.status_code not in (301, 302, 303, 307, 308) or target is None:
                return found
            response.close()
            url, before = self.led(url, target), url
            if url.origin != before.origin:
                headers = {name: value for name, value in headers.items() if name != "Authorization"}
        raise Misled(f"{self.trail.asked.public} leads on and on; {REDIRECTS} steps were followed.")

    def led(self, url, target):
        """The `Url` of a redirect; a name and password go along on the same server only."""
        try:
            found = read(urljoin(url.text, target))
        except (DownloadError, ValueError):
            raise Misled(f"{url.public} leads to an address that cannot be read.") from None
        userinfo = f"{url.user}@" if url.user and found.origin == url.origin else ""
        return read(re.sub("//([^/?#]*@)?", f"//{userinfo}", found.text, count=1))

    def ask(self, url, headers):
        """The response of one server; its body is not yet read."""
        require_safe(url)
        if (known := network_of_name(url.host)) is not None:
            self.trail.require(known, url.host)
        auth = get_auth_from_url(url.text) if url.user else as_it_is
        request = self.prepare_request(requests.Request("GET", url.text, headers, auth=auth))
        if request.url != url.text:
            raise Misled(f"{url.public} would be sent as another address.")
        environment = self.merge_environment_settings(request.url, {}, True, None, None)
        wait = settings.timeout()
        try:
            return self.get_adapter(request.url).send(request, timeout=(wait, wait), **environment)
        except requests.RequestException:
            raise
        except OSError as error:
            raise Misled(f"{url.public} cannot be asked: {printable(error)}") from None


def require_safe(url):
    """https anywhere; http only on this machine, or where the mirror was set to it."""
    mirror = settings.mirror()
    if url.scheme == "https" or is_loopback(url) or (mirror and url.origin == read(mirror).origin):
        return
    raise Misled(f"{url.public} is not fetched: expected https. A plain http mirror can be set as KERAS_VIT_MIRROR.")


def credentials(url):
    """The user's token for the Hugging Face Hub: for its own address alone, and not in the clear.

    Raises:
        DownloadError: for a token that no header can hold; it is not shown.
    """
    if url.origin != read(settings.hub()).origin or not (url.scheme == "https" or is_loopback(url)):
        return {}
    token = os.environ.get("HF_TOKEN")
    if token is None:
        with contextlib.suppress(ImportError):
            import huggingface_hub

            token = huggingface_hub.get_token()
    token = (token or "").strip()
    if re.fullmatch(r"[\x21-\x7e]*", token) is None:
        raise DownloadError("HF_TOKEN holds spaces or characters outside of ASCII, which no token has. Set it anew.")
    return {"Authorization": f"Bearer {token}"} if token else {}
