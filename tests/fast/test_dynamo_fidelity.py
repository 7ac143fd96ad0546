"""Dynamo's KV router, as it is compiled, sees the same, counts the same costs and sends each request where the real one
did, in every recording of ../shared/fidelity/routers_b that is of it.

All of the folder named in PREBLEEXP_ROUTER_B_FIDELITY (default: ../shared/fidelity/routers_b beside the checkout) if
there is one, else the few that are committed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from prebleexp.policies.dynamo import output_blocks
from prebleexp.policies.dynamo.kv import DynamoKV, Memory, book, choose, computed, look, score
from prebleexp.policies.dynamo.prompt_sets import BLOCK, HALF
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import View
from tests.support.recordings.routers import Driven, load, recordings, workload_of

pytestmark = pytest.mark.uncompiled

PATHS = [path for path in recordings("routers_b") if path.stem.startswith("dynamo_")]
SOFTMAX = [path for path in PATHS if path.stem == "dynamo_softmax"]
SEQUENCES = [path for path in PATHS if path.stem != "dynamo_softmax"]
NEARLY = 1 << 13
"""units of `BLOCK`"""
LIKELY = 16.27
"""99.9 % of chi squares with three degrees of freedom are below"""


@dataclass(frozen=True)
class Told(DynamoKV):
    """It is told of every output block, and does not wonder what has been generated."""

    def first_token(self, mine: Memory, view: View, request: int, now: float) -> None:
        computed(mine, view, request)


def settings_of(recording: dict[str, Any]) -> dict[str, Any]:
    given = recording["settings"]
    same = (
        "block_size",
        "overlap_score_credit",
        "overlap_score_credit_decay",
        "prefill_load_scale",
        "decode_active_request_weight",
    )
    return {name: given[name] for name in same} | {
        "use_kv_events": given["mode"] == "events",
        "router_ttl_secs": float(given["ttl_s"]),
        "router_temperature": given["temperature"],
        "router_track_active_blocks": given["track_active_blocks"],
        "router_track_prefill_tokens": given["track_prefill_tokens"],
        "router_track_output_blocks": given["track_output_blocks"],
    }


class Replayed(NamedTuple):
    decisions: int
    agree: int
    """the recorded GPU is one of the cheapest"""
    single: int
    """there is one cheapest"""
    costs: int
    """its cost is the recorded one"""
    seen: int
    """cached blocks and loads of all GPUs are the recorded ones"""


def replay(recording: dict[str, Any], policy: DynamoKV) -> Replayed:
    """Asked for every decision, and then sent to the recorded GPU. The rows of the workload are the arrivals, and the
    contexts that GPUs store."""
    events, contexts, size = ends_first(recording["events"]), recording["contexts"], policy.block_size
    arrivals = [event for event in events if event["e"] == "arrive"]
    row_of = {event["r"]: row for row, event in enumerate(arrivals)}
    prompts = [contexts[event["c"]] for event in arrivals] + contexts
    gpus, counts = recording["settings"]["workers"], np.zeros(4, int)
    driven = Driven(policy, workload_of([[(a, b) for a, b in path] for path in prompts]), gpus)
    for event in events:
        now, row = event["t"], row_of.get(event.get("r", ""), -1)
        if event["e"] == "arrive":
            counts += decide(driven, policy, row, event)
        elif event["e"] == "first":
            driven.first_token(row, now)
        elif event["e"] == "out":
            share = -1.0 if event["f"] is None else event["f"]
            gpu = int(driven.requests[row].gpu)
            output_blocks.one_more(driven.mine.outputs, driven.mine.active, row, gpu, share)
        elif event["e"] == "finish":
            driven.finished(row, now)
        elif event["e"] == "stored":
            driven.stored(len(arrivals) + event["c"], event["w"], event["b"] * size, now)
        else:
            driven.evicted(len(arrivals) + event["c"], event["w"], event["a"] * size, now)
    return Replayed(len(arrivals), *(int(one) for one in counts))


def ends_first(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a worker removed at one moment, told in the order in which caches drop it: it was recorded context by
    context. Nothing is decided in between, and what is left is the same."""
    told: list[dict[str, Any]] = []
    for _, run in groupby(events, lambda one: (one["e"], one["t"], one.get("w"))):
        told += sorted(run, key=lambda one: -one["a"] if one["e"] == "removed" else 0)
    return told


def decide(driven: Driven, policy: DynamoKV, row: int, event: dict[str, Any]) -> npt.NDArray[np.int64]:
    """Agreement with the recorded decision, which is taken; counted as in `Replayed`."""
    mine, gpu, tokens = driven.mine, event["worker"], event["tokens"]
    prefill, requests = mine.prefill.copy(), driven.sent.outstanding.copy()
    costs, overlap, decode = answered(driven, row, event["t"])
    down = rounds_either_way(mine) & (decode == [blocks + 1 for _, blocks, _ in event["loads"]])
    if down.any():
        costs, overlap, decode = answered(driven, row, event["t"], fewer=down * NEARLY)
    if policy.router_track_prefill_tokens:
        prefill += tokens - policy.block_size * overlap
    loads = np.column_stack([prefill, decode, requests])
    send(driven, row, gpu, event["t"])
    least = costs.min()
    same = overlap.tolist() == event["overlap"] and same_loads(loads.tolist(), event["loads"], policy)
    agree, single = costs[gpu] == least, (costs == least).sum() == 1
    return np.array([agree, single, abs(costs[gpu] - event["cost"]) < 1e-9, same]).astype(int)


def answered(driven: Driven, row: int, now: float, fewer: Any = 0) -> tuple[Any, Any, Any]:
    """Costs, cached blocks and active blocks of all GPUs, as it sees them at a decision; nothing of that is remembered.
    `fewer`: units of `BLOCK` that it takes to be active there."""
    mine = driven.mine
    driven.keep()
    mine.active.weights[:] -= fewer
    driven.decide(row, now)
    answers = mine.costs.copy(), mine.overlap.copy(), mine.decode.copy()
    driven.restore()
    return answers


def rounds_either_way(mine: Memory) -> npt.NDArray[np.bool_]:
    """Where active blocks come to a half. The real one adds them up as floats, in whatever order it has them: half a
    block or a little less."""
    rounded: npt.NDArray[np.bool_] = (mine.active.weights + HALF) % BLOCK < NEARLY
    return rounded


def send(driven: Driven, row: int, gpu: int, now: float) -> None:
    """Let it decide so, having no other choice."""
    every = driven.view.candidates
    driven.offers([gpu])
    assert driven.decide(row, now) == gpu
    driven.offers(every)
    driven.sends(row, gpu)


def same_loads(ours: list[list[int]], recorded: list[list[int]], policy: DynamoKV) -> bool:
    """Without prefill tokens in the cost, those that were recorded are no part of what the router counts."""
    shown = slice(0 if policy.router_track_prefill_tokens else 1, None)
    return [row[shown] for row in ours] == [row[shown] for row in recorded]


@pytest.mark.parametrize("path", SEQUENCES, ids=lambda path: path.stem)
def test_costs_loads_and_decisions_are_the_recorded_ones(path: Path) -> None:
    recording = load(path)
    made = replay(recording, Told(**settings_of(recording)))
    print(f"{path.stem}: {made.agree} of {made.decisions}, {made.single} without a draw")
    assert made.agree == made.costs == made.seen == made.decisions


# ---------------------------------------------------------------- rules that are not Dynamo's
CONSTANT, NO_BLOCKS, NO_BACKLOG, CACHED, CLAMPED, LATE = range(6)


@dataclass(frozen=True)
class Wrong(Told):
    rule: int = CONSTANT

    def route(self, mine: Memory, view: View, request: int, now: float) -> int:
        look(mine, view, request, now)
        for gpu in view.candidates:
            if self.rule == CONSTANT:
                mine.decode[gpu] += mine.computing[gpu]
            elif self.rule == NO_BLOCKS:
                mine.decode[gpu] = 0
            elif self.rule == NO_BACKLOG:
                mine.prefill[gpu] = 0
            elif self.rule == CACHED:
                mine.decode[gpu] += mine.computing[gpu] - mine.overlap[gpu]
        score(mine, view, request)
        if self.rule == CLAMPED:
            tokens = view.requests[request].prompt_tokens
            for gpu in view.candidates:
                beyond = max(0.0, self.overlap_score_credit * mine.overlap[gpu] - tokens / self.block_size)
                mine.costs[gpu] += self.prefill_load_scale * min(beyond, mine.prefill[gpu] / self.block_size)
        gpu = choose(mine, view)
        book(mine, view, request, gpu, now)
        return gpu

    def first_token(self, mine: Memory, view: View, request: int, now: float) -> None:
        if self.rule != LATE:
            computed(mine, view, request)


WRONG = {
    "the prompt's blocks count everywhere, active or not": (CONSTANT, 404),
    "no decode blocks": (NO_BLOCKS, 311),
    "no waiting prefill": (NO_BACKLOG, 200),
    "cached blocks are not counted, instead of active ones": (CACHED, 200),
    "the credit does not eat what waits already": (CLAMPED, 4),
    "prefill counts until the last token": (LATE, 614),
}
ALL = 2230
"""decisions in 26 recordings, of which so many are others"""


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.slow
def test_another_rule_decides_otherwise(name: str) -> None:
    rule, wrong = WRONG[name]
    made = [replay(one, Wrong(**settings_of(one), rule=rule)) for one in map(load, SEQUENCES)]
    decisions, agree, _, costs, _ = (sum(column) for column in zip(*made, strict=True))
    print(f"{name}: {decisions - agree} of {decisions} are others, {decisions - costs} costs")
    assert costs < decisions
    if decisions == ALL:
        assert decisions - agree == wrong


# ---------------------------------------------------------------- draws
BOOKED = (0, 80, 160, 320)
"""prompt tokens that wait on each GPU, and use so many blocks: with 144 more they cost 18, 28, 38 and 58 blocks"""


def drawn(temperature: float, draws: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """What the request would cost on each GPU, and how often each is drawn."""
    prompts = [[(row, tokens)] for row, tokens in enumerate([*BOOKED[1:], 144])]
    driven = Driven(DynamoKV(router_temperature=temperature), workload_of(prompts), len(BOOKED))
    for row in range(len(prompts) - 1):
        send(driven, row, row + 1, 0.0)
    driven.decide(len(prompts) - 1, 0.0)
    counts = np.zeros(len(BOOKED), np.int64)
    draw_so_often(driven.mine, driven.view.handle, draws, counts)
    return driven.mine.costs.copy(), counts


@compiled
def draw_so_often(mine: Any, view: Any, draws: int, counts: Any) -> None:
    for _ in range(draws):
        counts[choose(mine, view)] += 1


@pytest.mark.parametrize("path", SOFTMAX, ids=lambda path: path.stem)
def test_draws_are_as_likely_as_the_recorded_ones(path: Path) -> None:
    for recorded in load(path)["draws"]:
        costs, counts = drawn(recorded["temperature"], recorded["draws"])
        assert costs.tolist() == recorded["costs"]
        if recorded["temperature"] == 0:
            assert counts.tolist() == recorded["counts"]
        else:
            assert chi_square(counts, np.array(recorded["counts"])) < LIKELY
            plain = np.exp(-(costs - costs.min()) / recorded["temperature"])  # the costs as they are
            assert chi_square(recorded["draws"] * plain / plain.sum(), np.array(recorded["counts"])) > LIKELY


def chi_square(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> float:
    """Of two samples of one size."""
    both = one + other
    there = both > 0
    return float(np.sum((one - other)[there] ** 2 / both[there]))
