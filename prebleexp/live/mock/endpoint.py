"""One simulated GPU's server: what is asked of it over HTTP, and how it answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, Protocol

import msgspec
import numpy as np

from prebleexp.live.http import pages
from prebleexp.live.http.exchange import Exchange, event
from prebleexp.live.mock import tokens
from prebleexp.live.mock.answers import DONE, Answer, usage
from prebleexp.live.mock.asked import Asked, Wrong, read
from prebleexp.live.mock.cluster import Cluster
from prebleexp.live.mock.room import Full
from prebleexp.live.mock.tickets import Ticket
from prebleexp.sim.types import Ints, State

OUTPUT_TOKENS = b"x-prebleexp-output-tokens"
"""header by which a client says how long its answer is"""
IGNORED = b"x-prebleexp-ignored"
"""header of an answer that names fields of the request that were passed over"""
TEXT = b"text/plain; version=0.0.4; charset=utf-8"
DOWN = "this GPU is down"


class Clock(Protocol):
    """Simulated seconds, and who is told how late an answer is written."""

    def now(self) -> float: ...
    def wrote(self, due_s: float) -> None: ...
    def changed(self) -> None:
        """The cluster's next event may be an earlier one."""


class Endpoint:
    """GPU `gpu` of a cluster. A handler of `prebleexp.live.http.server.listen`."""

    def __init__(
        self,
        cluster: Cluster,
        gpu: int,
        model: str,
        clock: Clock,
        lengths: Ints,
        metrics: Callable[[], bytes],
        host: str = "127.0.0.1",
    ) -> None:
        self.cluster, self.gpu, self.model, self.clock = cluster, gpu, model, clock
        self._lengths, self._metrics, self._host = lengths, metrics, host
        self.asked = 0
        """requests for answers, so far"""
        self.sources: dict[str, Any] = {}
        """where KV events are published"""
        self.closing = False
        """nobody looks at the cluster any more"""
        self.on_clear: Callable[[], None] | None = None
        self._gets: dict[str, Callable[[Exchange], None]] = {
            "/health": self._health,
            "/ping": self._health,
            "/health_generate": self._health,
            "/v1/models": lambda one: self._json(one, self._models()),
            "/version": lambda one: self._json(one, {"version": f"prebleexp-{version('prebleexp')}"}),
            "/metrics": lambda one: one.respond(200, self._metrics(), TEXT),
            "/load": lambda one: self._json(one, {"server_load": self._load()}),
            "/get_model_info": lambda one: self._json(one, self._info()),
            "/model_info": lambda one: self._json(one, self._info()),
            "/get_server_info": lambda one: self._json(one, self._info()),
            "/server_info": lambda one: self._json(one, self._info()),
            "/kv_event_sources": lambda one: self._json(one, self.sources),
        }
        self._posts: dict[str, Callable[[Exchange], None]] = {
            "/v1/completions": lambda one: self._answer(one, chat=False),
            "/v1/chat/completions": lambda one: self._answer(one, chat=True),
            "/tokenize": self._tokenize,
            "/reset_prefix_cache": self._reset,
            "/flush_cache": self._reset,
            "/ping": self._health,
        }

    def __call__(self, exchange: Exchange) -> None:
        known = self._posts if exchange.method == "POST" else self._gets
        handler = known.get(exchange.path)
        try:
            if handler is not None and (exchange.method in ("GET", "HEAD", "POST")):
                handler(exchange)
            elif exchange.path in self._gets or exchange.path in self._posts:
                raise Wrong("Method Not Allowed", 405)
            else:
                raise Wrong("Not Found", 404)
        except Wrong as wrong:
            exchange.fail(wrong.status, wrong.message, wrong.kind)

    # ------------------------------------------------------------ answers
    def _answer(self, exchange: Exchange, chat: bool) -> None:
        cluster = self.cluster
        if not cluster.serves(self.gpu):
            raise Wrong(DOWN, 503)
        asked = read(exchange.body, chat)
        if asked.model not in (None, "", self.model):
            raise Wrong(f"The model `{asked.model}` does not exist.", 404)
        prompt = np.array(asked.prompt_ids, np.int32)
        most = asked.most(cluster.context_length, len(prompt))
        length, finish = self._length(exchange, asked, most)
        self.asked += 1
        answer = tokens.answer(prompt, length)
        stream = Stream(self, exchange, asked, Answer(self._number, self.model, chat, bool(asked.return_token_ids)))
        try:
            ticket = cluster.come(self.gpu, prompt, answer, most, self.clock.now(), stream, finish)
        except Full as full:
            raise Wrong(str(full), 503) from None
        stream.begin(ticket)
        self.clock.changed()

    @property
    def _number(self) -> int:
        return self.gpu << 64 | self.asked

    def _length(self, exchange: Exchange, asked: Asked, most: int) -> tuple[int, str]:
        """Tokens of the answer, and why it ends."""
        said = exchange.header(OUTPUT_TOKENS)
        if said is not None:
            try:
                wanted = int(said)
            except ValueError:
                wanted = 0
            if wanted < 1:
                raise Wrong(f"{OUTPUT_TOKENS.decode()} must be an integer of at least 1.")
        elif asked.ignore_eos:
            wanted = most
        else:
            drawn = int(self._lengths[(self.asked * self.cluster.gpus + self.gpu) % len(self._lengths)])
            wanted = max(drawn, asked.min_tokens or 0)
        return min(wanted, most), "length" if wanted >= most else "stop"

    # ------------------------------------------------------------ about it
    def _json(self, exchange: Exchange, value: Any, status: int = 200) -> None:
        exchange.respond(status, json.dumps(value).encode())

    def _health(self, exchange: Exchange) -> None:
        exchange.respond(200 if self.cluster.serves(self.gpu) else 503)

    def _models(self) -> dict[str, Any]:
        one = {"id": self.model, "object": "model", "created": 0, "owned_by": "prebleexp", "root": self.model}
        return {"object": "list", "data": [one | {"parent": None, "max_model_len": self.cluster.context_length}]}

    def _info(self) -> dict[str, Any]:
        return {
            "model_path": self.model,
            "served_model_name": self.model,
            "tokenizer_path": self.model,
            "is_generation": True,
            "max_model_len": self.cluster.context_length,
            "max_total_num_tokens": self.cluster.kv_tokens,
        }

    def _load(self) -> int:
        return sum(one.gpu == self.gpu for one in self.cluster.tickets.values())

    def _tokenize(self, exchange: Exchange) -> None:
        try:
            asked = msgspec.json.decode(exchange.body, type=dict[str, Any])
            chat = asked.get("messages")
            found = tokens.encode_chat(chat) if chat else tokens.encode(asked.get("prompt") or "")
        except (msgspec.MsgspecError, AttributeError, TypeError, RecursionError) as error:
            raise Wrong(f"the body is not valid: {error}") from None
        length = self.cluster.context_length
        self._json(exchange, {"count": len(found), "max_model_len": length, "tokens": found, "token_strs": None})

    def _reset(self, exchange: Exchange) -> None:
        why = pages.refuses(exchange, self._host)
        if why is not None:
            raise Wrong(why, 403)
        self.cluster.to(self.clock.now())
        if not self.cluster.clear(self.gpu):
            raise Wrong("the cache is in use, or cannot be emptied here", 409)
        if self.on_clear is not None:
            self.on_clear()
        exchange.respond(200)


class Stream:
    """An answer that is being made: hears of its tokens and writes them when they are there."""

    def __init__(self, endpoint: Endpoint, exchange: Exchange, asked: Asked, answer: Answer) -> None:
        self._endpoint, self._exchange, self._answer = endpoint, exchange, answer
        options = asked.stream_options
        self._streams = bool(asked.stream)
        self._usage = options is not None and bool(options.include_usage)
        self._each = options is not None and bool(options.continuous_usage_stats)
        ignored = asked.ignored
        self._headers = [(IGNORED, ", ".join(ignored).encode())] if ignored else []

    def begin(self, ticket: Ticket) -> None:
        if not self._exchange.closed and ticket.row in self._endpoint.cluster.tickets:
            self._exchange.on_leave = lambda: self._left(ticket)

    def _left(self, ticket: Ticket) -> None:
        if self._endpoint.closing:
            return
        self._endpoint.cluster.leave(ticket, self._endpoint.clock.now())
        self._endpoint.clock.changed()

    def token(self, ticket: Ticket, at_s: float) -> None:
        if not self._streams:
            return
        exchange, made = self._exchange, ticket.made
        used = self._used(ticket) if self._each else None
        finish = ticket.reason if made == ticket.target else None
        token = int(ticket.answer[made - 1])
        events = b"".join(map(event, self._answer.pieces(token, made == 1, finish, ticket.prompt, used)))
        if made == 1:
            exchange.start(headers=self._headers, piece=events)
        else:
            exchange.write(events)
        self._endpoint.clock.wrote(at_s)

    def ended(self, ticket: Ticket, state: State, at_s: float) -> None:
        exchange = self._exchange
        if state == State.FINISHED and self._streams:
            last = event(self._answer.last(self._used(ticket))) if self._usage else b""
            exchange.end(last + event(DONE))
        elif state == State.FINISHED:
            body = self._answer.whole(ticket.answer, ticket.reason, ticket.prompt, self._used(ticket))
            exchange.respond(200, body, headers=self._headers)
            self._endpoint.clock.wrote(at_s)
        elif state == State.LOST or (state == State.FAILED and ticket.made > 0):  # as of a process that died
            exchange.abort()
        elif state == State.FAILED:
            exchange.fail(500, "the request's KV did not arrive")
        elif ticket.fits:
            exchange.fail(429, "too many requests: the gateway has no place for this one")
        else:
            room = self._endpoint.cluster.kv_tokens
            exchange.fail(400, f"the request does not fit into the GPU's {room:,} KV tokens")

    def _used(self, ticket: Ticket) -> dict[str, Any]:
        return usage(len(ticket.prompt), ticket.made, self._endpoint.cluster.hit_tokens(ticket))
