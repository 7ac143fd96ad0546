"""Small servers of OpenAI's protocol in the test's own loop, which can be killed and come back."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import Any

from prebleexp.live.http.exchange import Exchange
from prebleexp.live.http.limits import Limits
from prebleexp.live.http.server import Server, listen

LIMITS = Limits(idle_s=600)
KEPT = 100
"""requests that an engine remembers"""


class Engine:
    """Streams `max_tokens` tokens, `gap_s` apart, or answers them whole."""

    def __init__(self, gap_s: float = 0.002) -> None:
        self.gap_s, self.port = gap_s, 0
        self.asked = deque[dict[str, Any]](maxlen=KEPT)
        self.bodies = deque[bytes](maxlen=KEPT)
        self.headers = deque[dict[bytes, bytes]](maxlen=KEPT)
        self.targets = deque[str](maxlen=KEPT)
        """of GETs below /v1/: paths and queries"""
        self.fields: list[tuple[bytes, bytes]] = []
        """that its answers have beside"""
        self.flying = self.ended = self.left = 0
        self.hangs = False
        """it takes requests and answers none, not even /health"""
        self.usage: Any = None
        """what it says of tokens; None: the truth"""
        self._server: Server | None = None

    async def start(self) -> Engine:
        self._server = await listen(self._answer, self.port, limits=LIMITS)
        self.port = self._server.port
        return self

    async def kill(self) -> None:
        """As a process that is gone: all connections break, nobody listens."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _answer(self, exchange: Exchange) -> None:
        if self.hangs:
            return
        if exchange.path == "/health":
            exchange.respond(200)
        elif exchange.path == "/metrics":
            rows = (
                f"vllm:num_requests_running {self.flying}",
                "vllm:num_requests_waiting 0",
                "vllm:kv_cache_usage_perc 0.25",
            )
            exchange.respond(200, "\n".join(rows).encode(), b"text/plain")
        elif exchange.path == "/v1/models":
            self.targets.append(exchange.target)
            self.headers.append(dict(exchange.headers))
            exchange.respond(200, b'{"object": "list", "data": [{"id": "tiny"}]}')
        elif exchange.path in ("/v1/completions", "/v1/chat/completions"):
            self._generate(exchange)
        else:
            exchange.fail(404, "not here")

    def _generate(self, exchange: Exchange) -> None:
        body = json.loads(exchange.body)
        self.bodies.append(exchange.body)
        self.headers.append(dict(exchange.headers))
        self.asked.append(body)
        if "refuse" in body:
            exchange.fail(int(body["refuse"]), "as asked")
            return
        tokens, chat = int(body.get("max_tokens", 4)), exchange.path.startswith("/v1/chat")
        usage = self.usage or {"prompt_tokens": len(exchange.body) // 5, "completion_tokens": tokens}
        self.flying += 1
        exchange.on_leave = self._leaves
        loop = asyncio.get_running_loop()

        def whole() -> None:
            if not exchange.closed:
                self._end()
                text = " ".join(f"t{i}" for i in range(tokens))
                exchange.respond(
                    200, json.dumps({"choices": [{"text": text}], "usage": usage}).encode(), headers=self.fields
                )

        def step(i: int) -> None:
            if exchange.closed:
                return
            if i < tokens:
                choice = {"delta": {"content": f"t{i} "}} if chat else {"text": f"t{i} "}
                exchange.event(json.dumps({"choices": [choice]}).encode())
                loop.call_later(self.gap_s, step, i + 1)
            else:
                self._end()
                exchange.event(json.dumps({"choices": [], "usage": usage}).encode())
                exchange.event(b"[DONE]")
                exchange.end()

        if not body.get("stream"):
            loop.call_later(self.gap_s * tokens, whole)
            return
        exchange.start(200, headers=[(b"x-engine", b"%d" % self.port)])
        if chat:
            exchange.event(b'{"choices": [{"delta": {"role": "assistant", "content": ""}}]}')
        loop.call_later(self.gap_s, step, 0)

    def _leaves(self) -> None:
        self.flying -= 1
        self.left += 1

    def _end(self) -> None:
        self.flying -= 1
        self.ended += 1
