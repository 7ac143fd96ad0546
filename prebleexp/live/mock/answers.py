"""The JSON of answers, whole and in pieces, as vLLM writes it."""

from __future__ import annotations

import json
import time
from typing import Any

from prebleexp.live.mock import tokens
from prebleexp.sim.types import Ints

DONE = b"[DONE]"


def usage(prompt: int, made: int, cached: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + made,
        "completion_tokens": made,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


class Answer:
    """One of a request."""

    def __init__(self, number: int, model: str, chat: bool, ids: bool) -> None:
        self._chat, self._ids = chat, ids
        self.id = f"{'chatcmpl' if chat else 'cmpl'}-{number:032x}"
        self._head: dict[str, Any] = {"id": self.id, "object": "", "created": int(time.time()), "model": model}
        self._begun = False

    def pieces(self, token: int, first: bool, finish: str | None, prompt: Ints, used: Any) -> list[bytes]:
        """Events for one more token. `used`: usage so far, if that is to be in each."""
        text = tokens.decode(token) if first else f" {tokens.decode(token)}"
        found = []
        if self._chat and first:
            found.append(self._event({"role": "assistant", "content": ""}, None, None, used))
        choice: Any = {"content": text} if self._chat else text
        found.append(self._event(choice, finish, ([token], prompt if first else None) if self._ids else None, used))
        return found

    def _event(self, said: Any, finish: str | None, ids: Any, used: Any) -> bytes:
        choice = {"index": 0, "delta" if self._chat else "text": said, "logprobs": None, "finish_reason": finish}
        if not self._chat:
            choice["stop_reason"] = None
        if ids is not None:
            choice["token_ids"] = ids[0]
            if ids[1] is not None and not self._chat:
                choice["prompt_token_ids"] = ids[1].tolist()
        made = self._head | {"object": self._kind(True), "choices": [choice]}
        if used is not None:
            made["usage"] = used
        return _json(made)

    def last(self, used: Any) -> bytes:
        """The event of usage alone."""
        return _json(self._head | {"object": self._kind(True), "choices": [], "usage": used})

    def whole(self, made: Ints, finish: str, prompt: Ints, used: Any) -> bytes:
        text = " ".join(tokens.decode(one) for one in made.tolist())
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": finish, "stop_reason": None}
        choice |= {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        if self._ids:
            choice["token_ids"] = made.tolist()
            choice["prompt_token_ids"] = prompt.tolist()
        return _json(self._head | {"object": self._kind(False), "choices": [choice], "usage": used})

    def _kind(self, piece: bool) -> str:
        if not self._chat:
            return "text_completion"
        return "chat.completion.chunk" if piece else "chat.completion"


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
