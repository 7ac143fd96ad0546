"""An answer as it comes: server-sent events of OpenAI's completions and chat, as vLLM, SGLang and routers send them.

The first token is the first event that has something of the answer: text, content, reasoning, a call of a tool, or ids
of tokens. Headers are none, nor are an event that has the role alone, or the usage.
"""

from __future__ import annotations

from typing import Any

import msgspec

from prebleexp.live.http.sse import Events, TooLong

MOST_SAID = 200
"""characters of an error"""


class Delta(msgspec.Struct):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[Any] | None = None


class Choice(msgspec.Struct):
    text: str | None = None
    delta: Delta | None = None
    token_ids: list[int] | None = None
    finish_reason: str | None = None

    @property
    def says(self) -> bool:
        """Whether something of the answer is in it."""
        delta = self.delta
        of_chat = delta and (delta.content or delta.reasoning or delta.reasoning_content or delta.tool_calls)
        return bool(self.text or self.token_ids or of_chat)


class Details(msgspec.Struct):
    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: Details | None = None


class Event(msgspec.Struct):
    choices: list[Choice] = []
    usage: Usage | None = None
    error: Any = None


class Answer:
    """What has come of one answer."""

    def __init__(self) -> None:
        self.times: list[float] = []
        """when each event came that had something of it"""
        self.ids: list[int] = []
        """of its tokens, where the server says them"""
        self.first_tokens = 0
        """in the first of these events, where it says ids"""
        self.usage: Usage | None = None
        self.finish_reason: str | None = None
        self.done = False
        """whether [DONE] came"""
        self.error: str | None = None
        """what the server said in the stream, or why that could not be read"""
        self._events = Events()

    @property
    def whole(self) -> bool:
        """Whether it came to its end."""
        return self.error is None and (self.done or self.finish_reason is not None)

    def feed(self, data: bytes, now: float) -> None:
        """Take in bytes of a stream that came at `now`."""
        try:
            for event in self._events.feed(data):
                self._event(event.strip(), now)
        except TooLong as error:
            self.error = str(error)

    def _event(self, data: bytes, now: float) -> None:
        if data == b"[DONE]":
            self.done = True
            return
        try:
            event = _EVENTS.decode(data)
        except msgspec.MsgspecError as error:
            self.error = f"an event of the stream is not as OpenAI has it: {error}"[:MOST_SAID]
            return
        if event.error is not None:
            self.error = str(event.error)[:MOST_SAID]
        self.usage = event.usage or self.usage
        for choice in event.choices[:1]:
            self.finish_reason = choice.finish_reason or self.finish_reason
            if choice.says:
                self.times.append(now)
                self.first_tokens = self.first_tokens or len(choice.token_ids or ())
                self.ids += choice.token_ids or ()


_EVENTS = msgspec.json.Decoder(Event)
