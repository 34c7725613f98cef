"""One file's requests: to the server that was named and to those it redirects to, with secrets for the first alone."""

import contextlib
import os
import re
from urllib.parse import urljoin

import requests
from requests.utils import get_auth_from_url

from keras_vit.errors import DownloadError
from keras_vit.text import printable
from keras_vit.zoo.fetch import settings
from keras_vit.zoo.fetch.urls import read_url

REDIRECTS = 10


class Misled(Exception):
    """A request that must not be sent."""


def is_loopback(url):
    """Whether the host of a `Url` is this machine by its plain names, to which nothing goes over a wire."""
    return re.fullmatch(r"localhost|127\.[0-9.]+|\[::1\]", url.host) is not None


def leave_unchanged(request):
    """Adds no password to a request: `requests` would add what ~/.netrc has for the host, or for all hosts."""
    return request


def redirected_url(url, target):
    """The `Url` that `url` redirects to; a name and password go along on the same server only."""
    try:
        found = read_url(urljoin(url.text, target))
    except (DownloadError, ValueError):
        raise Misled(f"{url.public} redirects to an address that cannot be read.") from None
    userinfo = f"{url.user}@" if url.user and found.origin == url.origin else ""
    return read_url(re.sub("//([^/?#]*@)?", f"//{userinfo}", found.text, count=1))


def require_safe(url, before=None):
    """https anywhere; http only on this machine, or where the mirror was set to it.

    Args:
        url: the `Url` to request.
        before: the `Url` that redirects there, or None: https never leads to http, and http to no other host's http.
    """
    mirror = settings.mirror()
    is_chosen = is_loopback(url) or (mirror and url.origin == read_url(mirror).origin)
    is_followed = before is None or (before.scheme == "http" and before.host == url.host)
    if url.scheme != "https" and not (is_chosen and is_followed):
        raise Misled(
            f"{url.public} is not fetched: expected https. A plain http mirror can be set as KERAS_VIT_MIRROR."
        )


class Session(requests.Session):
    """A session for one file: an address, and where its server redirects.

    Redirects are followed here, since `requests` reads the whole body of each, however long, looks ~/.netrc up for
    each, and follows them to plain http.
    """

    def __init__(self, url):
        super().__init__()
        self.named = url
        self.trust_env = not is_loopback(url)  # no proxy leads back to this machine
        self.headers.update({"Accept-Encoding": "identity", "User-Agent": "keras-vit"})

    def follow(self, headers):
        """The responses from the first to the one that redirects nowhere, whose body is not yet read."""
        url, before, responses = self.named, None, []
        for _ in range(REDIRECTS):
            require_safe(url, before)
            response = self.request_once(url, headers)
            responses.append(response)
            target = response.headers.get("Location")
            if response.status_code not in (301, 302, 303, 307, 308) or target is None:
                return responses
            response.close()
            url, before = redirected_url(url, target), url
            if url.origin != before.origin:
                headers = {name: value for name, value in headers.items() if name != "Authorization"}
        raise Misled(f"{self.named.public} redirects without end; {REDIRECTS} steps were followed.")

    def request_once(self, url, headers):
        """The response of one server; its body is not yet read."""
        auth = get_auth_from_url(url.text) if url.user else leave_unchanged
        request = self.prepare_request(requests.Request("GET", url.text, headers, auth=auth))
        if request.url != url.text:
            raise Misled(f"{url.public} would be sent as another address.")
        environment = self.merge_environment_settings(request.url, {}, True, None, None)
        wait = settings.timeout()
        try:
            return self.get_adapter(request.url).send(request, timeout=(wait, wait), **environment)
        except requests.RequestException:
            raise
        except OSError as error:  # a bundle of certificates that is not there
            raise Misled(f"{url.public} cannot be requested: {printable(error)}") from None


def authorization(url):
    """Headers with the user's token for the Hugging Face Hub: for its own address alone, and not in the clear.

    Raises:
        DownloadError: for a token that no header can hold; it is not shown.
    """
    if url.origin != read_url(settings.hub()).origin or not (url.scheme == "https" or is_loopback(url)):
        return {}
    token = os.environ.get("HF_TOKEN")
    if token is None:
        with contextlib.suppress(ImportError):  # where it is installed, it knows where the user's token lies
            import huggingface_hub

            token = huggingface_hub.get_token()
    token = (token or "").strip()
    if re.fullmatch(r"[\x21-\x7e]*", token) is None:
        raise DownloadError(
            "HF_TOKEN contains spaces or characters outside of ASCII, which no token does. Set it again."
        )
    return {"Authorization": f"Bearer {token}"} if token else {}
