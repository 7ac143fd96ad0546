"""Web pages: what they may not ask of a server, though their requests come from this machine.

A browser sends what a page asks for to any address, and whoever owns a name may point it at this machine once the page
is there (DNS rebinding). Requests that change something are therefore refused to pages. A browser gives `Origin` with
each of them. Where only this machine is served, `Host` must also be an address or localhost, which nobody can point
elsewhere.
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from prebleexp.live.http.exchange import Exchange
from prebleexp.live.http.places import is_loopback

ORIGIN = "web pages may change nothing here: this request has an Origin"


def refuses(exchange: Exchange, host: str) -> str | None:
    """Why a request that changes something is not obeyed, by a server that listens on `host`; None: it is."""
    if exchange.header(b"origin") is not None:
        return ORIGIN
    named = exchange.header(b"host")
    if named is None or not is_loopback(host) or _is_nobodys(named):
        return None
    shown = named[:80].decode("latin-1")
    return f"only this machine is served, and Host is {shown}: ask by its address or as localhost"


def _is_nobodys(named: bytes) -> bool:
    """Whether it is an address or localhost, with a port or without."""
    try:
        name = urlsplit(b"//" + named).hostname or b""
        if name == b"localhost" or name.endswith(b".localhost"):
            return True
        ip_address(name.decode())
    except ValueError:
        return False
    return True
