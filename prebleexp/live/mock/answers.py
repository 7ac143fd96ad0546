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
    """The answer of a mock server to one request."""

    def __init__(self, number: int, model: str, chat: bool, ids: bool) -> None:
        self._chat, self._ids = chat, ids
        self.id = f"{'chatcmpl' if chat else 'cmpl'}-{number:032x}"
        self._head: dict[str, Any] = {"id": self.id, "created": int(time.time()), "model": model}
        begun = _json(self._about(True))[:-1]
        said = b'"delta":{"content":"' if chat else b'"text":"'
        self._before = begun + b',"choices":[{"index":0,' + said
        """what stands before a token's text: there is a piece for each token, so they are not made one by one"""
        self._behind = b'"},"logprobs":null' if chat else b'","logprobs":null,"stop_reason":null'

    def pieces(self, token: int, first: bool, finish: str | None, prompt: Ints, used: Any) -> list[bytes]:
        """Events for one more token. `used`: usage so far, if that is to be in each."""
        text = tokens.decode(token) if first else f" {tokens.decode(token)}"
        more = b"" if used is None else b',"usage":' + _json(used)
        end = b'"finish_reason":null}]' if finish is None else b'"finish_reason":"%b"}]' % finish.encode()
        ids = b""
        if self._ids:
            ids = b'"token_ids":[%d],' % token
            if first and not self._chat:
                ids += b'"prompt_token_ids":%b,' % _json(prompt.tolist())
        found = [b"%b%b%b,%b%b%b}" % (self._before, text.encode(), self._behind, ids, end, more)]
        if self._chat and first:
            role = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
            found.insert(0, _json(self._about(True) | {"choices": [role]})[:-1] + more + b"}")
        return found

    def last(self, used: Any) -> bytes:
        """The last chunk of a stream: `usage` with counts of tokens and no choices, as OpenAI's protocol has it."""
        return _json(self._about(True) | {"choices": [], "usage": used})

    def whole(self, made: Ints, finish: str, prompt: Ints, used: Any) -> bytes:
        text = " ".join(tokens.decode(one) for one in made.tolist())
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": finish, "stop_reason": None}
        choice |= {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        if self._ids:
            choice["token_ids"] = made.tolist()
            choice["prompt_token_ids"] = prompt.tolist()
        return _json(self._about(False) | {"choices": [choice], "usage": used})

    def _about(self, piece: bool) -> dict[str, Any]:
        chat = "chat.completion.chunk" if piece else "chat.completion"
        return self._head | {"object": chat if self._chat else "text_completion"}


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
