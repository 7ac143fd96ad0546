"""AIBrix's prefix-cache: its recordings catch wrong rules; random streams against a table of single blocks."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.errors import InvalidInput
from prebleexp.policies.aibrix.imbalance import choose, spread
from prebleexp.policies.aibrix.prefix_cache import PrefixCache, best_match
from prebleexp.policies.aibrix.table import Table, expire, put, shares
from prebleexp.policies.choices import any_least_outstanding
from prebleexp.policies.loads import look
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE, View
from prebleexp.testing import check_policy
from tests.support.places import ROOT
from tests.support.recordings.router_models import MODELS
from tests.support.recordings.routers import Driven, Path_, load, replay, workload_of
from tests.support.sampled import examples

RECORDINGS = sorted((ROOT / "tests/data/fidelity/routers").glob("aibrix_prefix_cache_*.json"))
"""two of the five: a decision that is impossible takes hundreds of draws to be known as such"""
pytestmark = pytest.mark.uncompiled


# ---------------------------------------------------------------- wrong rules
@dataclass(frozen=True)
class MoreThanHalf(PrefixCache):
    """Half of the prompt or less is no match."""

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        expire(mine.table, now)
        look(mine.loads, view)
        requests = mine.loads.outstanding
        least, most, mean, deviation = spread(requests, view)
        choose(requests, view, least, most - least <= self.imbalance_abs_count, mine.ready)
        shares(mine.table, view, request, mine.ready, mine.percent)
        for gpu in view.candidates:
            if mine.percent[gpu] <= 50:
                mine.percent[gpu] = -1
        gpu = best_match(mine, requests, view, mean + self.standard_deviation_factor * deviation)
        if gpu == NONE:
            gpu = any_least_outstanding(mine.draws, requests, view)
        put(mine.table, view, request, gpu, now)
        return gpu


@dataclass(frozen=True)
class NotCut(PrefixCache):
    """Percentages are not cut to whole ones: the order is that of the blocks."""

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        expire(mine.table, now)
        look(mine.loads, view)
        requests = mine.loads.outstanding
        least, most, mean, deviation = spread(requests, view)
        choose(requests, view, least, most - least <= self.imbalance_abs_count, mine.ready)
        for gpu in view.candidates:
            may = (mine.ready[gpu >> 6] >> (gpu & 63)) & 1 == 1
            found = sent(mine.table, view, request, gpu)
            mine.percent[gpu] = found if may and found > 0 else -1
        gpu = best_match(mine, requests, view, mean + self.standard_deviation_factor * deviation)
        if gpu == NONE:
            gpu = any_least_outstanding(mine.draws, requests, view)
        put(mine.table, view, request, gpu, now)
        return gpu


@compiled
def sent(table: Table, view: View, request: int, gpu: int) -> int:
    """Leading blocks of the prompt that one GPU was sent."""
    prompt, at = view.requests[request], 0
    for row in range(prompt.first_segment, prompt.first_segment + prompt.segments):
        run = table.first[view.prompts.ids[row]]
        while at < view.prompts.ends[row] // table.block:
            if run == 0 or table.runs[run].low > at or (table.holders[run, gpu >> 6] >> (gpu & 63)) & 1 == 0:
                return at
            at = int(table.runs[run].high)
            run = table.runs[run].behind
    return at


def wrong(kind: type[PrefixCache], **changed: Any) -> tuple[int, int]:
    """(decisions of the recordings that are wrong by another rule or setting, all of them)"""
    failed = total = 0
    for path in RECORDINGS:
        recording = load(path)
        asked = vars(MODELS["aibrix_prefix_cache"](recording["settings"]))
        made = replay(recording, kind(**asked | changed), bytes_of=True)
        failed, total = failed + made.decisions - made.agree, total + made.decisions
    return failed, total


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        (MoreThanHalf, {}),
        (NotCut, {}),
        (PrefixCache, {"standard_deviation_factor": 1e6}),
        (PrefixCache, {"imbalance_abs_count": 1 << 40}),
        (PrefixCache, {"block_number": 1000}),
    ],
    ids=["half", "not_cut", "no_deviation", "no_imbalance", "small_table"],
)
@pytest.mark.slow
def test_recordings_catch_a_wrong_rule(kind: type[PrefixCache], changed: dict[str, Any]) -> None:
    """Of these 700 decisions 43, 4, 23, 29 and 166; of all 1,650 that were recorded 105, 4, 75, 30 and 395."""
    failed, total = wrong(kind, **changed)
    print(f"{kind.__name__} {changed}: {failed} of {total} wrong")
    assert failed > 0


# ---------------------------------------------------------------- a table of single blocks
Block = tuple[int, int]


class Blocks:
    """The least recently put block goes first; getting one does not touch it. In plain Python, block by block."""

    def __init__(self, policy: PrefixCache) -> None:
        self.policy, self.size = policy, round(policy.block_size / policy.characters_per_token)
        self.held: OrderedDict[Block, tuple[set[int], float]] = OrderedDict()
        self.numbers = dict[Any, int]()

    def blocks(self, path: Path_) -> list[Block]:
        """(the number of a prefix that a block ends, that of the block within it)"""
        tokens = [(one, at) for one, (_, size) in enumerate(path) for at in range(size)]
        found, prefix = list[Block](), 0
        for number, end in enumerate(range(self.size, len(tokens) + 1, self.size)):
            inside = tuple((path[one], at) for one, at in tokens[end - self.size : end])
            prefix = self.numbers.setdefault((prefix, inside), len(self.numbers) + 1)
            found.append((prefix, number))
        return found

    def expire(self, now: float) -> None:
        unused_s = 60 * self.policy.eviction_duration_mins
        for block, (_, put_s) in list(self.held.items()):
            if math.floor(now) - put_s > unused_s:
                del self.held[block]

    def shares(self, path: Path_, ready: set[int]) -> dict[int, int]:
        percent, left, blocks = dict[int, int](), set(ready), self.blocks(path)
        for number, block in enumerate(blocks, 1):
            left &= self.held[block][0] if block in self.held else set()
            percent |= dict.fromkeys(left, 100 * number // len(blocks))
        return percent

    def put(self, path: Path_, gpu: int, now: float) -> None:
        for block in self.blocks(path):
            gpus, _ = self.held.get(block, (set[int](), 0.0))
            self.held[block] = (gpus | {gpu}, now)
            self.held.move_to_end(block)
            if len(self.held) > self.policy.block_number:
                self.held.popitem(last=False)

    def possible(self, path: Path_, loads: list[int]) -> tuple[dict[int, int], set[int]]:
        """(percentage of each GPU that matches, where the request may go)"""
        least = {gpu for gpu, load in enumerate(loads) if load == min(loads)}
        apart = max(loads) - min(loads) > self.policy.imbalance_abs_count
        percent = self.shares(path, least if apart else set(range(len(loads))))
        mean = sum(loads) / len(loads)
        deviation = math.sqrt(sum((load - mean) ** 2 for load in loads) / max(1, len(loads) - 1))
        near = [gpu for gpu in percent if loads[gpu] <= mean + self.policy.standard_deviation_factor * deviation]
        best = min(((-percent[gpu], loads[gpu]) for gpu in near), default=None)
        return percent, {gpu for gpu in near if (-percent[gpu], loads[gpu]) == best} or least

    def contents(self) -> list[tuple[int, set[int], float]]:
        """(number within its prompt, GPUs, when it was put), in the order in which they go"""
        return [(number, *held) for (_, number), held in self.held.items()]


def contents(table: Table, gpus: int) -> list[tuple[int, set[int], float]]:
    """Likewise."""
    found, run = [], int(table.control.oldest)
    while run != 0:
        record, bits = table.runs[run], int(table.holders[run, 0])
        holders = {gpu for gpu in range(gpus) if (bits >> gpu) & 1}
        found += [(block, holders, float(record.put_s)) for block in range(record.low, record.high)]
        assert record.low < record.high
        assert record.behind == 0 or table.runs[record.behind].before == run
        run = int(record.behind)
    assert len(found) == table.control.blocks
    return found


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[list[tuple[int, int]]], list[float], list[int]]:
    """Prompts with common beginnings, the seconds between them, and how many requests end before each."""
    steps = st.tuples(st.integers(0, 2), st.sampled_from([1, 2, 3, 5, 8]))
    prompts = draw(st.lists(st.lists(steps, min_size=1, max_size=4), min_size=1, max_size=30))
    n = len(prompts)
    gaps = draw(st.lists(st.sampled_from([0.0, 0.25, 1.0, 20.0]), min_size=n, max_size=n))
    return prompts, np.cumsum(gaps).tolist(), draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(streams(), st.integers(1, 4), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 3, 7, 12, 25, 60]))
def test_a_random_stream_is_decided_as_with_single_blocks(
    stream: tuple[list[list[tuple[int, int]]], list[float], list[int]], gpus: int, size: int, most: int
) -> None:
    """With tables that a single prompt overflows, and blocks that are dropped after a minute."""
    prompts, times, ends = stream
    policy = PrefixCache(1.0, size, most, 1.0, imbalance_abs_count=2)
    driven, model = Driven(policy, workload_of(prompts), gpus), Blocks(policy)
    loads, running = [0] * gpus, list[int]()
    for request, (path, now) in enumerate(zip(prompts, times, strict=True)):
        for _ in range(min(ends[request], len(running))):
            driven.finished(running[0], now)
            loads[int(driven.requests[running.pop(0)].gpu)] -= 1
        model.expire(now)
        percent, possible = model.possible(path, loads)
        assert set(driven.answers(request, now, 80)) == possible
        gpu = driven.decide(request, now)
        assert gpu in possible
        assert driven.mine.percent.tolist() == [percent.get(one, -1) for one in range(gpus)]
        model.put(path, gpu, now)
        assert contents(driven.mine.table, gpus) == model.contents()
        driven.sends(request, gpu)
        loads[gpu] += 1
        running.append(request)


@pytest.mark.slow
def test_a_long_stream_that_overflows_the_table_is_decided_as_with_single_blocks() -> None:
    """What is dropped first are the beginnings of prompts; a beginning that is put again is known of its GPU alone,
    while what followed it is still known of others. Runs are reused."""
    rng = np.random.default_rng(11)
    prompts = [[(int(rng.integers(3)), 40), (int(rng.zipf(1.4)) % 9, 30), (one % 7, 25)] for one in range(400)]
    policy = PrefixCache(1.0, 1, 600, imbalance_abs_count=4)
    driven, model, loads = Driven(policy, workload_of(prompts), 6), Blocks(policy), [0] * 6
    held = 0
    for request, path in enumerate(prompts):
        now = 0.5 * request
        if request >= 12:
            driven.finished(request - 12, now)
            loads[int(driven.requests[request - 12].gpu)] -= 1
        model.expire(now)
        _, possible = model.possible(path, loads)
        gpu = driven.decide(request, now)
        assert gpu in possible
        model.put(path, gpu, now)
        if request % 10 == 0:
            assert contents(driven.mine.table, 6) == model.contents()
        held = max(held, int(driven.mine.table.control.runs))
        driven.sends(request, gpu)
        loads[gpu] += 1
    assert held < 100


# ---------------------------------------------------------------- by hand
def test_one_common_block_is_a_match_and_a_percentage_is_cut() -> None:
    """Of 300 blocks one is 0 %, and still a match; 2 and 1 of 300 are both 0 %, so the load decides."""
    prompts = [[(0, 4), (1, 1196)], [(0, 4), (2, 1196)], [(3, 4), (4, 8)], [(0, 4), (5, 1196)]]
    driven = Driven(PrefixCache(characters_per_token=1), workload_of(prompts), 3)
    first = driven.decide(0, 0.0)
    assert driven.decide(1, 0.0) == first
    assert driven.mine.percent[first] == 0
    driven.sends(2, first)
    driven.sends(2, first)
    assert driven.decide(3, 0.0) != first  # far above the mean: the least loaded
    assert sorted(driven.mine.percent.tolist()) == [-1, -1, 0]


def test_a_prompt_without_a_whole_block_goes_to_the_least_loaded() -> None:
    driven = Driven(PrefixCache(characters_per_token=1), workload_of([[(0, 3)], [(0, 3)]]), 2)
    driven.sends(0, driven.decide(0, 0.0))
    assert set(driven.answers(1, 0.0, 20)) == {1 - int(driven.requests[0].gpu)}
    assert driven.mine.table.control.blocks == 0


@pytest.mark.parametrize(("now", "left"), [(1200.0, 5), (1200.9, 5), (1201.0, 0)])
def test_blocks_go_at_the_first_look_after_twenty_minutes(now: float, left: int) -> None:
    """Put at 0.5 s, looked at each second: at 1,200 s they are 1,199.5 s old, at 1,201 s 1,200.5 s."""
    driven = Driven(PrefixCache(characters_per_token=4), workload_of([[(0, 5)], [(1, 1)]]), 2)
    driven.decide(0, 0.5)
    driven.decide(1, now)
    assert driven.mine.table.control.blocks == left + 1


@pytest.mark.slow
@pytest.mark.uncompiled(False)
@pytest.mark.parametrize("policy", [PrefixCache(), PrefixCache(block_number=700, imbalance_abs_count=1)])
def test_it_passes_the_contract(policy: PrefixCache) -> None:
    check_policy(policy)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("characters_per_token", 0),
        ("block_size", 0),
        ("block_number", 2.5),
        ("eviction_duration_mins", -1),
        ("imbalance_abs_count", -1),
        ("standard_deviation_factor", "one"),
    ],
)
def test_it_says_what_is_not_valid(field: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=rf"^policy\.{field}={value} is not valid; it must be"):
        replace(PrefixCache(), **{field: value})
