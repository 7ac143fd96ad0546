"""The LRU of blocks that llm-d and BLIS keep for each server, in segments, against one that keeps every block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.policies.llmd import block_index
from prebleexp.sim import addresses
from prebleexp.sim import records as of
from prebleexp.sim.handles import Block
from prebleexp.sim.types import Setup, Workload, records
from prebleexp.sim.world import made_cache, made_view
from tests.support.recordings.routers import workload_of
from tests.support.reference import llmd_blocks
from tests.support.reference.llmd_blocks import Believed, Rules
from tests.support.sampled import examples

pytestmark = pytest.mark.uncompiled

Prompt = Sequence[tuple[int, int]]


class Both:
    """The same prompts put into both; what either finds."""

    def __init__(self, prompts: Sequence[Prompt], gpus: int, rules: Rules) -> None:
        workload = workload_of(prompts)
        setup = Setup(gpus, 0, len(workload), 1000, 1000, workload)
        cache = made_cache(setup, 8)
        costs = records(gpus, addresses.COST)
        self._view = Block(made_view(cache.requests, cache.prompts, records(gpus, of.REPORT), costs))
        made = block_index.block_index(setup, rules.block_size, rules.most, rules.partial, rules.capacity)
        self.index, self._made, self._held = Block(made), made, np.zeros(gpus, np.int64)
        self.models = {leaks: [Believed(rules, leaks) for _ in range(gpus)] for leaks in (True, False)}
        self.blocks, self.full = (
            [llmd_blocks.blocks_of(path, rules._replace(partial=partial)) for path in paths_of(workload)]
            for partial in (rules.partial, False)
        )

    def put(self, request: int, gpu: int) -> None:
        block_index.put(self.index.handle, self._view.handle, request, gpu)
        for models in self.models.values():
            models[gpu].put(self.blocks[request])

    def forget(self, gpu: int) -> None:
        block_index.forget_all(self.index.handle, gpu)
        for models in self.models.values():
            models[gpu].forget()

    def counted(self, request: int) -> Any:
        block_index.counted(self.index.handle, self._view.handle, request, self._held)
        return self._held.tolist()

    def leading(self, request: int) -> Any:
        block_index.leading(self.index.handle, self._view.handle, request, self._held)
        return self._held.tolist()

    def check(self, request: int) -> None:
        blocks, asked = self.blocks[request], (self.index.handle, self._view.handle, request)
        assert block_index.blocks_of(*asked) == len(blocks)
        assert self.counted(request) == llmd_blocks.counted(self.models[True], blocks)
        assert self.leading(request) == llmd_blocks.leading(self.models[False], self.full[request])
        assert self._made.lrus.blocks.tolist() == [len(one.lru) for one in self.models[True]]


def paths_of(workload: Workload) -> list[list[tuple[int, int]]]:
    rows = [range(a, b) for a, b in zip(workload.segment_offsets, workload.segment_offsets[1:], strict=False)]
    return [[(int(workload.segment_ids[i]), int(workload.segment_tokens[i])) for i in row] for row in rows]


SIZES = st.integers(1, 9)
PROMPTS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=5)


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[Prompt], int, Rules, list[tuple[int, int]]]:
    """Prompts of few segments of few sizes, so that many share some, and few blocks a GPU; where each goes, and which
    GPU is lost after it, -1: none."""
    sizes = draw(st.lists(SIZES, min_size=9, max_size=9))
    drawn = draw(st.lists(PROMPTS, min_size=1, max_size=40))
    prompts: list[Prompt] = [[(3 * a + b, sizes[3 * a + b]) for a, b in path] for path in drawn]
    gpus = draw(st.integers(1, 4))
    most = draw(st.sampled_from([3, 7, 2**31 - 1]))
    rules = Rules(draw(st.sampled_from([1, 2, 3, 4, 8])), most, draw(st.booleans()), draw(st.integers(1, 14)))
    lost = st.sampled_from([-1] * 5 * gpus + list(range(gpus)))
    to = draw(st.lists(st.tuples(st.integers(0, gpus - 1), lost), min_size=len(prompts), max_size=len(prompts)))
    return prompts, gpus, rules, to


@pytest.mark.slow
@settings(max_examples=examples(400), deadline=None)
@given(streams())
def test_it_believes_what_one_that_keeps_every_block_does(
    stream: tuple[list[Prompt], int, Rules, list[tuple[int, int]]],
) -> None:
    """After every prompt, of every prompt."""
    prompts, gpus, rules, to = stream
    both = Both(prompts, gpus, rules)
    for request, (gpu, lost) in enumerate(to):
        both.put(request, gpu)
        if lost >= 0:
            both.forget(lost)
        for other in range(len(prompts)):
            both.check(other)


@pytest.mark.parametrize("seed", range(3))
def test_long_streams_agree_as_well(seed: int) -> None:
    """Hundreds of prompts, each of which goes on from another or from the beginning, on 70 GPUs."""
    rng: Any = np.random.default_rng(seed)
    prompts: list[list[tuple[int, int]]] = []
    for number in range(400):
        prefix = prompts[rng.integers(number)] if number and rng.random() < 0.8 else []
        prompts.append([*prefix[: rng.integers(0, len(prefix) + 1)], (number, int(rng.integers(1, 40)))])
    gpus, capacity = 70 if seed == 0 else 3, (5, 12, 40)[seed]
    both = Both(prompts, gpus, Rules(4, 2**31 - 1, True, capacity))
    for request in range(len(prompts)):
        both.put(request, int(rng.integers(gpus)) if rng.random() < 0.7 else 0)
        both.check(request)
        both.check(int(rng.integers(len(prompts))))


# ---------------------------------------------------------------- by hand, blocks of 4
def held(sent: Sequence[tuple[Prompt, int]], prompt: Prompt, rules: Rules) -> tuple[list[int], list[int]]:
    """What prompts that were sent to GPUs let believe of another: counted, and leading."""
    both = Both([*(one for one, _ in sent), prompt], 2, rules)
    for request, (_, gpu) in enumerate(sent):
        both.put(request, gpu)
    return both.counted(len(sent)), both.leading(len(sent))


LLMD = Rules(4, 100, True, 10)
TEN: Prompt = [(0, 16), (1, 24)]
THREE: Prompt = [(9, 12)]
FOUR: Prompt = [(0, 16)]


def test_a_partial_block_is_found_by_the_same_prompt_alone() -> None:
    """10 tokens are blocks of 4, 4 and 2; one that goes on has others from the third on."""
    one, longer = [(0, 10)], [(0, 10), (1, 2)]
    assert held([(one, 0)], one, LLMD)[0] == [3, 0]
    assert held([(one, 0)], longer, LLMD)[0] == [2, 0]
    assert held([(longer, 0)], one, LLMD)[0] == [2, 0]
    assert held([(one, 0)], one, LLMD._replace(partial=False))[0] == [2, 0]


def test_the_oldest_blocks_go_first_and_what_comes_again_leaves_a_gap() -> None:
    """GPU 0 has room for 10. Three others push out the first three of its ten; four of these, sent again, push out
    three more: now it has 4, none, and 3, which count if another has those between."""
    assert held([(TEN, 0)], TEN, LLMD) == ([10, 0], [10, 0])
    assert held([(TEN, 0), (THREE, 0)], TEN, LLMD) == ([0, 0], [0, 0])
    assert held([(TEN, 0), (THREE, 0), (TEN, 1)], TEN, LLMD) == ([7, 10], [0, 10])
    again = [(TEN, 0), (THREE, 0), (FOUR, 0)]
    assert held(again, TEN, LLMD) == ([4, 0], [4, 0])
    assert held([*again, (TEN, 1)], TEN, LLMD) == ([7, 10], [4, 10])


def test_what_a_prompt_pushes_out_of_its_own_is_believed_until_it_comes_again() -> None:
    """12 blocks where 10 have room: the first two are believed for ever, the others as long as they are in the LRU."""
    twelve, other, two = [(0, 8), (1, 40)], [(9, 40)], [(0, 8)]
    assert held([(twelve, 0)], twelve, LLMD) == ([12, 0], [0, 0])
    assert held([(twelve, 0), (other, 0)], twelve, LLMD) == ([2, 0], [0, 0])
    assert held([(twelve, 0), (two, 0), (other, 0)], twelve, LLMD) == ([0, 0], [0, 0])


def test_no_more_than_the_most_blocks_of_a_prompt_count() -> None:
    assert held([([(0, 39)], 0)], [(0, 39)], LLMD._replace(most=5)) == ([5, 0], [5, 0])
