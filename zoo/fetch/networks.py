"""Which networks a fetch may reach: no redirect of a server leads to this machine or into a private network.

`requests` follows redirects anywhere, so a server on the internet could make it ask a service that only this machine
can reach. A name says nothing about where it leads: each connection is looked at once it stands, before anything is
sent over it.
"""

import contextlib
import ipaddress
import re

from requests.adapters import HTTPAdapter
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

INTERNET, THIS_MACHINE = "the internet", "this machine"


class Misled(Exception):
    """A request that must not be sent."""


def network_of_ip(address):
    """The network of an IP address, in words."""
    ip = ipaddress.ip_address(address.strip("[]").partition("%")[0])
    ip = getattr(ip, "ipv4_mapped", None) or getattr(ip, "sixtofour", None) or ip
    if ip.is_loopback or ip.is_unspecified:
        return THIS_MACHINE
    if ip.is_link_local:
        return "the local link"
    return INTERNET if ip.is_global else "a private network"


def network_of_host(host):
    """The network of a host as it is written, in words; None where only a look-up tells."""
    if host == "localhost" or host.endswith(".localhost"):
        return THIS_MACHINE
    with contextlib.suppress(ValueError):
        return network_of_ip(host)


def is_loopback(url):
    """Whether the host of a `Url` is this machine by its plain names, to which nothing goes over a wire."""
    return re.fullmatch(r"localhost|127\.[0-9.]+|\[::1\]", url.host) is not None


class Guard:
    """Lets a fetch reach the network of the address that was named, and the internet.

    `redirected` is set once the address in hand is a server's and no longer the user's.
    """

    def __init__(self, named):
        self.named, self.allowed, self.redirected = named, {INTERNET, network_of_host(named.host)}, False

    def require_allowed(self, network, host):
        if not self.redirected:
            self.allowed.add(network)
        elif network not in self.allowed:
            raise Misled(f"{self.named.public} leads to {host}, which is on {network}; it is not followed there.")

    def require_host(self, host):
        """Refuses a host whose network is known before anything is looked up."""
        if (network := network_of_host(host)) is not None:
            self.require_allowed(network, host)

    def require_connection(self, sock, host):
        """Refuses a connection by the address at its other end, which no name can hide."""
        there, here = sock.getpeername()[0], sock.getsockname()[0]
        self.require_allowed(THIS_MACHINE if there == here else network_of_ip(there), host)


def guarded_pool(pool, guard):
    """The same class of connection pool, whose connections are looked at before anything is sent over them."""

    class Connection(pool.ConnectionCls):
        def connect(self):
            super().connect()
            guard.require_connection(self.sock, self.host)

    return type(pool.__name__, (pool,), {"ConnectionCls": Connection})


class GuardedAdapter(HTTPAdapter):
    """Guarded connections. Those through a proxy end at the proxy, which the user has chosen."""

    def __init__(self, guard):
        self.guard = guard
        super().__init__()

    def init_poolmanager(self, *args, **kwargs):
        super().init_poolmanager(*args, **kwargs)
        pools = {"http": HTTPConnectionPool, "https": HTTPSConnectionPool}
        self.poolmanager.pool_classes_by_scheme = {name: guarded_pool(pool, self.guard) for name, pool in pools.items()}
