"""What an answer says of its tokens, read while its bytes pass."""

from __future__ import annotations

from typing import Any

import msgspec

from prebleexp.live.http import sse

DONE = b"[DONE]"
CONTENT = ("text", "content", "reasoning", "reasoning_content", "tool_calls", "token_ids")
"""what a first token comes as"""


MOST_TOKENS = 1 << 30
"""that anybody can have counted"""


class _Piece(msgspec.Struct):
    choices: list[dict[str, Any]] = []
    usage: dict[str, Any] | None = None


_DECODER = msgspec.json.Decoder(_Piece)


class Answer:
    """One of a server's answers."""

    __slots__ = ("_events", "_first", "_output", "_usage")

    def __init__(self) -> None:
        self._first, self._output = False, 0
        self._events: sse.Events | None = None
        self._usage: dict[str, Any] | None = None

    def begins(self, content_type: bytes) -> None:
        if content_type.startswith(b"text/event-stream"):
            self._events = sse.Events()

    @property
    def streams(self) -> bool:
        return self._events is not None

    @property
    def output(self) -> int:
        """Tokens, as usage has them; without it, events."""
        return self._output

    @property
    def usage(self) -> dict[str, Any]:
        """As it was told, empty if it was not."""
        return self._usage or {}

    def feed(self, piece: bytes) -> bool:
        """Bytes of a stream; whether the first token is among them. Raises `sse.TooLong`."""
        if self._events is None:
            return False
        before = self._first
        for event in self._events.feed(piece):
            if event == DONE:
                continue
            if self._first and b'"usage"' not in event:
                self._output += 1
                continue
            self._read(event)
        if self._usage is not None:
            self._output = max(self._output, counted(self._usage.get("completion_tokens")))
        return self._first and not before

    def whole(self, body: bytes) -> None:
        """A body that is no stream."""
        try:
            piece = _DECODER.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        self._usage = piece.usage
        self._output = counted(self.usage.get("completion_tokens"))

    def _read(self, event: bytes) -> None:
        try:
            piece = _DECODER.decode(event)
        except msgspec.DecodeError:
            return
        if piece.usage:
            self._usage = piece.usage
        if piece.choices and (self._first or _has_content(piece.choices[0])):
            self._output += 1
            self._first = True


def counted(value: Any) -> int:
    """Tokens, as a server's usage has them; 0 for what is no number of tokens."""
    return min(value, MOST_TOKENS) if isinstance(value, int) and value > 0 else 0


def _has_content(choice: dict[str, Any]) -> bool:
    """Whether there is a token in it: a role alone is none."""
    delta = choice.get("delta")
    return any(choice.get(name) for name in CONTENT) or (
        isinstance(delta, dict) and any(delta.get(name) for name in CONTENT)
    )
