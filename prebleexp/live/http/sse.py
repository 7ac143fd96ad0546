"""Server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html), read as the bytes come."""

from __future__ import annotations

LONGEST = 16 << 20
"""bytes of one event"""


class TooLong(ValueError):
    """An event of more than `LONGEST` bytes."""


class Events:
    """Bytes in any pieces to the data of whole events. Fields but `data` are left out."""

    __slots__ = ("_begun", "_lines", "_return", "_size")

    def __init__(self) -> None:
        self._begun: list[bytes] = []
        self._lines: list[bytes] = []
        self._return = False
        self._size = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """Data of the events that are whole now. Raises TooLong."""
        if b"\r" in piece or self._return:
            piece = self._ends(piece)
        elif not self._size and not self._lines and piece.startswith(b"data: ") and piece.endswith(b"\n\n"):
            if piece.find(b"\n") == len(piece) - 2:  # an event of one line, as servers mostly send them
                return [piece[6:-2]]
            found = piece[6:-2].split(b"\n\ndata: ")
            if piece.count(b"\n") == 2 * len(found):
                return found
        first, *lines = piece.split(b"\n")
        self._begun.append(first)
        self._size += len(first)
        if lines:
            lines, self._begun = [b"".join(self._begun), *lines[:-1]], lines[-1:]
        found = []
        for line in lines:
            if line.startswith(b"data:"):
                self._lines.append(line[6:] if line[5:6] == b" " else line[5:])
            elif line == b"data":
                self._lines.append(b"")
            elif not line and self._lines:
                found.append(self._lines[0] if len(self._lines) == 1 else b"\n".join(self._lines))
                self._lines = []
        if lines:
            self._size = sum(map(len, self._lines)) + len(self._begun[0])
        if self._size > LONGEST:
            raise TooLong(f"an event of more than {LONGEST:,} bytes")
        return found

    def _ends(self, piece: bytes) -> bytes:
        """With \\n alone. The second half of a \\r\\n may come with the next piece."""
        if self._return and piece.startswith(b"\n"):
            piece = piece[1:]
        self._return = piece.endswith(b"\r") or (self._return and not piece)
        return piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
