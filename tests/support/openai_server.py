"""A server as OpenAI's, on the package's own HTTP, whose answers a test decides: tokens, errors, cuts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from prebleexp.live.http.exchange import Exchange
from prebleexp.live.http.server import listen

Answer = Callable[[int, dict[str, Any]], str]
"""of the number of a request and its body: `ok`, `busy`, `broken`, `cut`, `empty`, `slow` or `says the key`"""


@dataclass
class Seen:
    port: int = 0
    bodies: list[dict[str, Any]] = field(default_factory=list)
    left: int = 0
    """clients that went away"""


@asynccontextmanager
async def serving(answers: Answer = lambda number, body: "ok", gap_s: float = 0.002) -> AsyncIterator[Seen]:
    seen, tasks = Seen(), set[asyncio.Task[None]]()

    def handle(exchange: Exchange) -> None:
        if exchange.path == "/v1/models":
            exchange.respond(200, json.dumps({"data": [{"id": "tiny"}]}).encode())
        elif exchange.path == "/metrics":
            exchange.respond(200, _metrics(len(seen.bodies)), b"text/plain")
        else:
            number, body = len(seen.bodies), json.loads(exchange.body)
            seen.bodies.append(body)
            task = asyncio.get_running_loop().create_task(_answer(exchange, seen, answers(number, body), body, gap_s))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    server = await listen(handle, 0)
    seen.port = server.port
    try:
        yield seen
    finally:
        await server.close()


async def _answer(exchange: Exchange, seen: Seen, how: str, body: dict[str, Any], gap_s: float) -> None:
    def gone() -> None:
        seen.left += 1

    exchange.on_leave = gone
    if how == "busy":
        exchange.fail(429, "too many requests")
        return
    if how == "broken":
        exchange.fail(500, "engine is dead")
        return
    if how == "says the key":
        exchange.fail(401, "wrong: " + (exchange.header(b"authorization") or b"").decode())
        return
    if how == "slow":
        await asyncio.sleep(60 * gap_s)
    prompt = body.get("prompt") or body["messages"][0]["content"]
    many = len(prompt) if isinstance(prompt, list) else len(prompt.split())
    chat = "messages" in body
    exchange.start(headers=[(b"x-prebleexp-gpu", b"%d" % (many % 2))])
    if chat:
        exchange.event(json.dumps({"choices": [{"delta": {"role": "assistant", "content": ""}}]}).encode())
    for at in range(0 if how == "empty" else body["max_tokens"]):
        await asyncio.sleep(gap_s)
        if exchange.closed:
            return
        if how == "cut" and at:
            exchange.abort()
            return
        says = {"delta": {"content": f"t{at} "}} if chat else {"text": f"t{at} ", "token_ids": [20 + at]}
        exchange.event(json.dumps({"choices": [says | {"index": 0}]}).encode())
    usage = {
        "prompt_tokens": many,
        "completion_tokens": body["max_tokens"],
        "prompt_tokens_details": {"cached_tokens": 16},
    }
    exchange.event(json.dumps({"choices": [], "usage": usage}).encode())
    exchange.event(b"[DONE]")
    exchange.end()


def _metrics(requests: int) -> bytes:
    lines = [f'vllm:request_queue_time_seconds_sum{{engine="0"}} {requests * 0.25}']
    lines += [f'vllm:request_queue_time_seconds_count{{engine="0"}} {requests}']
    lines += ['vllm:num_preemptions_total{engine="0"} 3', "# HELP x y", "vllm:broken{ 1"]
    return "\n".join(lines).encode()
