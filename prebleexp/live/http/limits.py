"""What clients may do to a server."""

from __future__ import annotations

from dataclasses import dataclass

FULL = (503, "the server holds as many bytes of requests as it may; come again later")


@dataclass(frozen=True)
class Limits:
    """What a client may do. Bytes, seconds."""

    header_bytes: int = 64 << 10
    """of the request line and all fields"""
    body_bytes: int = 32 << 20
    held_bytes: int = 1 << 30
    """of all requests together that are not answered yet, as they were sent"""
    connections: int = 16_384
    request_s: float = 60.0
    """from a request's first byte to its last"""
    idle_s: float = 75.0
    """of a connection that asks for nothing"""
    stalled_s: float = 60.0
    """of a client that does not read what it asked for"""
    unread_bytes: int = 16 << 20
    """of an answer that the client has not read"""
    linger_s: float = 2.0
    """in which the rest of a refused request is read, so that its sender sees the answer and no reset"""


class Budget:
    """Bytes that a server holds for all its clients together, and the most that it may."""

    def __init__(self, most: int) -> None:
        self.most, self.held = most, 0

    def take(self, size: int) -> bool:
        """Whether there was room for so many more: only then they are held."""
        fits = self.held + size <= self.most
        self.held += size * fits
        return fits

    def give(self, size: int) -> None:
        self.held -= size
