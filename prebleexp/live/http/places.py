"""Where servers are: URLs as people write them."""

from __future__ import annotations

import ssl
from functools import cache
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from prebleexp.errors import InvalidInput


class Origin(NamedTuple):
    """A server. `base` stands before every path: empty, or as "/proxy"."""

    scheme: str
    host: str
    port: int
    base: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.base}"

    @property
    def authority(self) -> bytes:
        """The `host` field of a request."""
        return _authority(self.host, self.port)

    def ssl(self) -> ssl.SSLContext | None:
        return _trusted() if self.scheme == "https" else None


def origin(name: str, url: str) -> Origin:
    """Of `name=url`. Raises InvalidInput for what is no http:// or https:// URL, or has a password or a query."""
    wrong = f"{name}={url} is not valid; it must be a URL as http://127.0.0.1:8000"
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    except (ValueError, KeyError):
        raise InvalidInput(wrong) from None
    if parts.username is not None or parts.password is not None:
        raise InvalidInput(f"{name}= has a password in its URL, which logs would show; give it another way")
    if not parts.hostname or parts.query or parts.fragment or any(one <= " " or one > "~" for one in url):
        raise InvalidInput(wrong)
    return Origin(parts.scheme, parts.hostname, port, parts.path.rstrip("/"))


def is_loopback(host: str) -> bool:
    """Whether who listens there serves only this machine."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


@cache
def _authority(host: str, port: int) -> bytes:
    return f"{f'[{host}]' if ':' in host else host}:{port}".encode()


@cache
def _trusted() -> ssl.SSLContext:
    return ssl.create_default_context()
