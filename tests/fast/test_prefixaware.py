"""production-stack's prefixaware: its recordings catch wrong rules; random streams against plain sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.errors import InvalidInput
from prebleexp.policies.choices import least_outstanding
from prebleexp.policies.production_stack.arrivals import arrived, fewest
from prebleexp.policies.production_stack.prefixaware import CHUNK, PrefixAware, add, any_holder, holds, insert, longest
from prebleexp.sim.draws import below
from prebleexp.sim.records import View
from prebleexp.testing import check_policy
from tests.support.recordings.router_models import MODELS
from tests.support.recordings.routers import Agreement, Driven, Path_, load, recordings, replay, workload_of
from tests.support.sampled import examples

pytestmark = pytest.mark.thorough

Token = tuple[Path_, int]
RECORDINGS = [path for path in recordings("routers") if path.stem.startswith("pstack_prefixaware")]


# ---------------------------------------------------------------- wrong rules
@dataclass(frozen=True)
class FirstOfEquals(PrefixAware):
    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        chunks, row = longest(mine.trie, view, request)
        gpu = int(view.candidates[0])
        if chunks * CHUNK < self.prefix_min_match_length:
            gpu = fewest(mine.arrivals, view, now)
        elif chunks > 0:
            while not holds(mine.trie, row, gpu):
                gpu += 1
        arrived(mine.arrivals, gpu, now)
        insert(mine.trie, view, request, gpu)
        return gpu


@dataclass(frozen=True)
class ByLoad(PrefixAware):
    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        chunks, row = longest(mine.trie, view, request)
        gpu = least_outstanding(view)
        if chunks * CHUNK < self.prefix_min_match_length:
            gpu = fewest(mine.arrivals, view, now)
        elif chunks > 0:
            gpu = -1
            for one in view.candidates:
                less = gpu < 0 or view.sent[one].outstanding < view.sent[gpu].outstanding
                if less and holds(mine.trie, row, one):
                    gpu = one
        arrived(mine.arrivals, gpu, now)
        insert(mine.trie, view, request, gpu)
        return gpu


@dataclass(frozen=True)
class WithoutShortChunk(PrefixAware):
    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        mine.trie.holders[mine.trie.ids :] = 0
        chunks, row = longest(mine.trie, view, request)
        if chunks * CHUNK < self.prefix_min_match_length:
            gpu = fewest(mine.arrivals, view, now)
        elif chunks == 0:
            gpu = view.candidates[below(mine.draws, len(view.candidates))]
        else:
            gpu = any_holder(mine.trie, row, mine.draws, view)
        arrived(mine.arrivals, gpu, now)
        insert(mine.trie, view, request, gpu)
        return gpu


def replayed(kind: type[PrefixAware]) -> list[Agreement]:
    """What becomes of the recordings by another rule."""
    loaded = [load(path) for path in RECORDINGS]
    return [replay(one, kind(**vars(MODELS["prefixaware"](one["settings"])))) for one in loaded]


@pytest.mark.parametrize("kind", [FirstOfEquals, ByLoad])
@pytest.mark.slow
def test_recordings_catch_a_wrong_rule(kind: type[PrefixAware]) -> None:
    """Of all 1,500 decisions, 50 and 54."""
    made = replayed(kind)
    wrong = sum(one.decisions - one.agree for one in made)
    print(f"{kind.__name__}: {wrong} of {sum(one.decisions for one in made)} wrong")
    assert wrong > 0


@pytest.mark.slow
def test_recordings_catch_a_last_chunk_that_is_left_out() -> None:
    """Without it 14 decisions are drawn from two workers or more. The recorded ones are all what the last chunk says,
    which happens once in 2^14 times if it says nothing."""
    with_it, without = replayed(PrefixAware), replayed(WithoutShortChunk)
    assert all(one.agree == one.decisions for one in with_it)
    print(f"drawn: {sum(one.drawn for one in with_it)}, without: {sum(one.drawn for one in without)}")
    assert sum(one.drawn for one in without) >= sum(one.drawn for one in with_it) + 14


# ---------------------------------------------------------------- plain sets
class Model:
    """Chunks as texts with all before them, and who was sent each."""

    def __init__(self, gpus: int, size: int, least: int) -> None:
        self.size, self.least, self.sent = size, least, [set[Sequence[Token]]() for _ in range(gpus)]
        self.arrivals: list[int] = []

    def chunks(self, path: Path_) -> list[Sequence[Token]]:
        tokens = [(path[: i + 1], at) for i, (_, size) in enumerate(path) for at in range(size)]
        return [tuple(tokens[: at + self.size]) for at in range(0, len(tokens), self.size)]

    def possible(self, path: Path_) -> set[int]:
        left, matched = set(range(len(self.sent))), 0
        for chunk in self.chunks(path):
            holders = {gpu for gpu in left if chunk in self.sent[gpu]}
            if not holders:
                break
            left, matched = holders, matched + CHUNK
        if matched < self.least:
            unused = [gpu for gpu in range(len(self.sent)) if gpu not in self.arrivals]
            return {unused[0] if unused else min(range(len(self.sent)), key=self.arrivals.count)}
        return left

    def took(self, path: Path_, gpu: int) -> None:
        self.arrivals.append(gpu)
        self.sent[gpu] |= set(self.chunks(path))


steps = st.tuples(st.integers(0, 2), st.integers(1, 9))
paths = st.lists(steps, min_size=1, max_size=4)


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(st.lists(paths, min_size=1, max_size=25), st.integers(1, 3), st.sampled_from([0, 1, CHUNK + 1, 3 * CHUNK]))
def test_a_random_stream_is_decided_as_by_sets_of_chunks(prompts: list[Path_], gpus: int, least: int) -> None:
    """Chunks of four tokens, and segments that end anywhere in them."""
    policy = PrefixAware(characters_per_token=CHUNK / 4, prefix_min_match_length=least)
    driven, model = Driven(policy, workload_of(prompts), gpus), Model(gpus, 4, least)
    for request, path in enumerate(prompts):
        possible = model.possible(tuple(path))
        assert set(driven.answers(request, 0.0, 60)) == possible
        gpu = driven.decide(request, 0.0)
        assert gpu in possible
        model.took(tuple(path), gpu)


def test_a_prompt_that_ends_in_a_short_chunk_matches_only_the_same_end() -> None:
    """Chunks are of four tokens. With three GPUs known for the beginning of the first prompt, only its repetition goes
    where the whole of it went."""
    prompts = [[(0, 4), (1, 2)], [(0, 4), (2, 2)], [(0, 4), (1, 2), (3, 1)], [(0, 4), (1, 2)]]
    driven = Driven(PrefixAware(characters_per_token=CHUNK / 4), workload_of(prompts), 4)
    first = driven.decide(0, 0.0)
    known = {first, (first + 1) % 4, (first + 2) % 4}
    for row, gpu in product(range(2), known):
        add(driven.mine.trie, row, gpu)
    assert set(driven.answers(1, 0.0, 60)) == set(driven.answers(2, 0.0, 60)) == known
    assert set(driven.answers(3, 0.0, 60)) == {first}


@pytest.mark.parametrize("least", [0, 256])
def test_it_passes_the_contract(least: int) -> None:
    check_policy(PrefixAware(prefix_min_match_length=least))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("characters_per_token", 0),
        ("characters_per_token", "four"),
        ("prefix_min_match_length", -1),
        ("prefix_min_match_length", 1.5),
        ("request_stats_window", 0.0),
    ],
)
def test_it_says_what_is_not_valid(field: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=rf"^policy\.{field}={value} is not valid; it must be"):
        PrefixAware(**{field: value})
