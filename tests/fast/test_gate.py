"""`gateway=` of `route`: a proxy lets in, refuses and keeps waiting whom the simulated gateway does."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from prebleexp.engines.vllm.engine import VLLM
from prebleexp.errors import InvalidInput
from prebleexp.gateway.base import Gateway
from prebleexp.lengths.known import Max
from prebleexp.live.http.calls import Call
from prebleexp.live.http.exchange import Exchange
from prebleexp.live.http.places import origin
from prebleexp.live.router import gate
from prebleexp.live.router.deciding import Deciding
from prebleexp.live.router.gate import WORDS, Gate
from prebleexp.live.router.proxy import Proxy
from prebleexp.live.router.upstreams import Stage, Upstream
from prebleexp.overhead.model import Overhead
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.sim.records import REPORT
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import Outcome, State, Workload, records
from tests.support.by_hand.streams import own, stream
from tests.support.costs.linear_cost import LinearCost
from tests.support.sampled import THOROUGH

GPUS, REQUESTS = 3, 40
ONE = VLLM(max_num_seqs=1, async_scheduling=False, host_s=0.0, enable_prefix_caching=False)
"""a GPU serves one request at a time, so that no two end at once"""
TOKEN = LinearCost(step_s=0.0, token_s=2.0**-10, context_token_s=0.0, kv_tokens=16 * 1001, gpu_memory_gib=48)
REASONS = {1: "limit", 2: "queue", 3: "bucket"}
"""of `Outcome.refused_by`"""
GATEWAYS = {
    "a limit": Gateway(limit=9),
    "a queue": Gateway(max_in_flight=1, queue_limit=3),
    "a bucket": Gateway(bucket_tokens=400, refill_tokens_s=300.0),
    "time": Gateway(max_in_flight=1, ttl_queue_s=0.25),
    "priorities": Gateway("priority", max_in_flight=1),
    "all": Gateway("priority", max_in_flight=2, limit=10, queue_limit=4, ttl_queue_s=0.5, bucket_tokens=900),
}


class Clocked(Proxy):
    """Its time is what it is told, and so are its timers."""

    clock = 0.0

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._loop: Any = self
        self.timers: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()

    @property
    def now(self) -> float:
        return self.clock

    def call_later(self, seconds: float, call: Callable[..., object], *given: Any) -> None:
        heapq.heappush(self.timers, (self.clock + seconds, next(self._order), lambda: call(*given)))

    call_soon = staticmethod(lambda call, *given: call(*given))


class Sent:
    """A client of servers, which hears what the test says."""

    def call(self, *given: Any) -> Call:
        return Call(b"", given[-1])


class Asking:
    """A client's connection."""

    def __init__(self) -> None:
        self.said = b""

    def write(self, data: bytes) -> bool:
        self.said += data
        return True

    def abort(self) -> None: ...
    def finished(self, keep_alive: bool) -> None: ...


def routed(workload: Workload, given: Gateway, simulated: Outcome) -> tuple[list[int], list[str]]:
    """Of each request the GPU that it was sent to (-1: none), and what it was told where that is no answer: of the same
    requests, which end when the simulated ones do."""

    async def main() -> tuple[list[int], list[str]]:
        deciding = Deciding(LeastOutstanding(), [TOKEN] * GPUS, 0, 1, rows=64)
        upstreams = [Upstream(g, origin("url", f"http://127.0.0.1:{g + 1}")) for g in range(GPUS)]
        for one in upstreams:
            one.stage = Stage.UP
        client: Any = Sent()
        proxy = Clocked(deciding, upstreams, client, hold_s=1e9, polls=False, gateway=given)
        deciding.begin(range(GPUS))
        gpus, said = [-1] * len(workload), [Asking() for _ in range(len(workload))]
        exchanges = []
        due = [(float(at), 0, i) for i, at in enumerate(workload.arrival_s)]
        due += [(float(at), 1, i) for i, at in enumerate(simulated.finish_s) if not np.isnan(at)]
        for at, ends, i in sorted(due):
            while proxy.timers and proxy.timers[0][0] <= at:
                proxy.clock, _, ring = heapq.heappop(proxy.timers)
                ring()
            proxy.clock = at
            if ends:
                (passage,) = [p for one in upstreams for p in one.flying if p.exchange is exchanges[i]]
                gpus[i] = passage.upstream.number
                passage.head(200, [])
                passage.data(b'{"usage": {"completion_tokens": 1}}')
                passage.done()
            else:
                body = {"prompt": [i + 1] * int(workload.prompt_tokens[i]), "priority": int(workload.priority[i])}
                whole = json.dumps(body).encode()
                exchanges.append(Exchange(said[i], b"POST", b"/v1/completions", [], whole, True, False))
                proxy(exchanges[-1])
        return gpus, [one.said.decode() for one in said]

    return asyncio.run(main())


@pytest.mark.thorough
@pytest.mark.parametrize("name", GATEWAYS)
def test_it_is_as_the_simulated_gateway(name: str) -> None:
    kinds = set[int]()
    for seed in range(6 if os.environ.get(THOROUGH) else 2):
        draw = np.random.default_rng(seed)
        prompts, answers = draw.integers(20, 300, REQUESTS).tolist(), draw.integers(20, 120, REQUESTS).tolist()
        arrivals = np.cumsum(draw.exponential(0.05, REQUESTS)).tolist()
        workload = stream([own(i, one) for i, one in enumerate(prompts)], arrivals, answers)
        workload = replace(workload, priority=draw.integers(0, 3, REQUESTS).astype(np.int32))
        of: dict[str, Any] = {"policy": LeastOutstanding(), "overhead": Overhead(), "lengths": Max(), "seed": seed}
        of |= {"hardware": TOKEN, "engine": ONE, "gpus": GPUS, "duration_s": 99.0, "horizon": "drain"}
        simulated = simulate(workload, gateway=GATEWAYS[name], **of)
        gpus, said = routed(workload, GATEWAYS[name], simulated)
        assert gpus == simulated.gpu.tolist()
        for state, why, words in zip(simulated.state, simulated.refused_by, said, strict=True):
            status = {State.FINISHED: 200, State.REFUSED: 429, State.EXPIRED: 503}[State(state)]
            assert words.startswith(f"HTTP/1.1 {status} ")
            assert status != 429 or WORDS[REASONS[int(why)]] in words
        kinds |= {*simulated.state.tolist()}
    assert kinds == {State.FINISHED} if name == "priorities" else len(kinds) > 1


def test_who_is_not_urgent_is_shed_while_servers_are_full() -> None:
    told, upstream = records(1, REPORT), Upstream(0, None)
    told.kv_tokens, told.kv_free, told.evictable, told.queued = 100, 40, 20, 4
    upstream.stage = Stage.UP
    shedding = Gate(Gateway(shed=True), [upstream])
    assert shedding.refuses(1, 1, told, 0.0) is None, "4 of 5 wait there, and half of 0.8 are in use"
    told.queued = 5
    assert shedding.refuses(1, 1, told, 0.0) == "saturation"
    assert shedding.refuses(1, 0, told, 0.0) is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Gateway(replicas=2), "start so many"),
        (Gateway("vtc"), "route has fcfs and priority"),
        (Gateway(slo_ttft_s=1.0), r"gateway.slo_ttft_s= is of simulated gateways; route takes gateway.order, "),
    ],
)
def test_what_a_router_cannot_do_is_refused(given: Gateway, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        gate.check(given)
