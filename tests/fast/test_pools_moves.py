"""Requests that move between GPUs of one role: examples to check on paper.

A token takes 0.1 ms, computed or sent, so a prompt of 1,000 tokens 100 ms, and the 63 blocks of its KV 100.8 ms. GPU 0
is sent all that it can be, and GPUs serve one request at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from prebleexp.policies.base import Policy
from prebleexp.sim.migration import Migration
from prebleexp.sim.moves import RUNNING, WAITING, WAITING_FIRST
from prebleexp.sim.pools import PULL, PUSH_AT_END, UNCACHED
from prebleexp.sim.records import View
from prebleexp.sim.types import Outcome, Workload
from tests.support.by_hand.pools import KV_BYTES, SYNCHRONOUS, serve, split
from tests.support.by_hand.streams import own, stream

ONE_AT_A_TIME = replace(SYNCHRONOUS, max_num_seqs=1)
pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class First(Policy):
    reads_lengths: ClassVar[bool] = False

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return int(view.candidates[0])


def move(workload: Workload, counts: tuple[int, int], every_s: float | None, chooses: int, **pools: Any) -> Outcome:
    """GPUs are paired every so many seconds, and a block that is moved takes 0.016 ms; None: none is."""
    link = {"kv_bytes": KV_BYTES, "sharing": 0, "rate": 1e9, "latency_s": 0.0}
    moves = None if every_s is None else Migration(every_s, **link, below_freeness=1000.0, chooses=chooses)  # type: ignore[arg-type]
    given = {"policy": First(), "engine": ONE_AT_A_TIME, "migration": moves}
    return serve(workload, split(decode_policy=First(), **pools), counts, **given)


@pytest.mark.parametrize(
    "pools", [{"protocol": PULL}, {"protocol": PUSH_AT_END}, {"decider": UNCACHED, "least_tokens": 1}]
)
def test_a_prompt_that_waits_is_computed_where_it_goes(pools: dict[str, Any]) -> None:
    """At 50 ms the second prompt waits behind the first, and is computed by 150 ms on the other GPU for prompts, not by
    200 ms: its second token, or the first if it is not shown where the prompt is computed, comes 100.9 ms later."""
    two = stream([own(0, 1000), own(1, 1000)], [0.0, 0.0], [1 + (pools.get("protocol") == PUSH_AT_END)] * 2)
    made = move(two, (2, 1), 0.05, WAITING_FIRST, **pools)
    assert made.moves.tolist() == [0, 1]
    assert (made.gpu.tolist(), made.decode_gpu.tolist()) == ([0, 1], [2, 2])
    assert made.prefill_end_s * 1e3 == pytest.approx([100, 150])
    assert made.latency_s * 1e3 == pytest.approx([200.9, 250.9])
    assert move(two, (2, 1), None, WAITING_FIRST, **pools).latency_s * 1e3 == pytest.approx([200.9, 300.9])


def test_kv_that_waits_to_be_read_is_read_where_its_request_goes() -> None:
    """The second prompt is computed at 300 ms, and its request waits at GPU 1, where the first runs until 500.8. At 350
    it goes to GPU 2, which reads it by 450.8."""
    two = stream([own(0, 1000), own(1, 1000)], [0.0, 0.2], [3000, 1])
    made = move(two, (1, 2), 0.35, WAITING)
    assert made.moves.tolist() == [0, 1]
    assert made.decode_gpu.tolist() == [1, 2]
    assert made.transferred_tokens.tolist() == [1008, 1008]
    assert made.prefilled_tokens.tolist() == [1000, 1000]
    assert made.latency_s * 1e3 == pytest.approx([500.8, 250.9])
    assert move(two, (1, 2), None, WAITING).latency_s * 1e3 == pytest.approx([500.8, 401.7])


def test_an_output_goes_on_at_another_gpu_for_outputs() -> None:
    """At 350 ms 155 blocks are full, and copied in 2.48 ms, in which 25 tokens come: it is away while three more are
    copied, for 0.048 ms."""
    one = stream([own(0, 1000)], [0.0], [3000])
    made = move(one, (1, 2), 0.35, RUNNING)
    assert made.moves.tolist() == [1]
    assert (made.gpu.tolist(), made.decode_gpu.tolist()) == ([0], [2])
    assert made.stopped_s * 1e3 == pytest.approx(0.048)
    assert made.latency_s * 1e3 == pytest.approx(500.8 + 0.048)
    assert made.gpu_forwarded_tokens.sum() == 1000 + 3000


def test_what_is_under_way_does_not_move() -> None:
    """At 150 ms GPU 1 reads the prompt's KV; at 50 ms the prompt is being computed, beside a GPU that does nothing."""
    one = stream([own(0, 1000)], [0.0], [1])
    assert move(one, (1, 2), 0.15, WAITING_FIRST).moves.tolist() == [0]
    assert move(one, (2, 1), 0.05, WAITING_FIRST).moves.tolist() == [0]
