"""AIBrix's prefix-cache-preble against a plain tree of tokens, summed anew for every decision; and by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.errors import InvalidInput
from prebleexp.policies.aibrix.preble_cost import FITS, prefill_s
from prebleexp.policies.aibrix.prefix_cache_preble import PrefixCachePreble
from prebleexp.testing import check_policy
from tests.support.recordings.routers import Driven, Path_, workload_of
from tests.support.sampled import examples

pytestmark = pytest.mark.uncompiled

Token = tuple[tuple[tuple[int, int], ...], int]


# ---------------------------------------------------------------- a plain tree
@dataclass(eq=False)
class Node:
    tokens: list[Token]
    parent: Node | None = None
    children: dict[Token, Node] = field(default_factory=dict)
    gpus: set[int] = field(default_factory=set)
    accessed_s: float = 0.0
    count: int = 0
    prompts: int = 0
    hits: int = 0

    def context(self) -> int:
        return len(self.tokens) + (self.parent.context() if self.parent else 0)

    def depth(self) -> int:
        return 1 + self.parent.depth() if self.parent else 0

    def up(self) -> list[Node]:
        return [self, *(self.parent.up() if self.parent else [])]

    def all(self) -> list[Node]:
        return [self, *(one for child in self.children.values() for one in child.all())]

    def cost(self) -> int:
        if self.count == 0:
            return 0
        fresh, context = len(self.tokens), self.context()
        linear = -295 + 3.125 * fresh - 6.4e-3 * fresh**2 if fresh < 384 else 0.27106428 * fresh + 10.52444263
        ms = 55 if fresh < 192 else linear
        ms += 0.8 if context <= 1024 else (4.65e-4 * context + 0.398) / (2 if fresh <= 1024 else 1)
        missed = 1 - self.hits / self.prompts
        return round((missed * self.count * ms / 1000 / 0.9 + 45 * 0.15) * 1e9)


class Model:
    """What the program does, step by step, with nothing kept but its tree and its window."""

    def __init__(self, policy: PrefixCachePreble, gpus: int) -> None:
        self.policy, self.gpus, self.root, self.window = policy, gpus, Node([]), list[tuple[float, Node]]()

    def expire(self, now: float) -> None:
        looked = math.floor(now)
        for entered_s, node in list(self.window):
            if entered_s <= looked - 60 * self.policy.sliding_window_period:
                self.window.remove((entered_s, node))
                node.count -= 1
                node.prompts -= node.context()
                node.hits -= node.context() - len(node.tokens)
                if node.count == 0:
                    node.prompts = node.hits = 0
        stale = [node for node in self.root.all()[1:] if looked - node.accessed_s > 300]
        for node in sorted(stale, key=lambda node: (node.accessed_s, -node.depth())):
            for above in node.up()[1:]:
                above.gpus -= node.gpus
            assert node.parent is not None
            assert not node.children
            del node.parent.children[node.tokens[0]]

    def insert(self, path: Path_, now: float) -> tuple[Node, int]:
        """(node in which the prompt ends, tokens of it that were there)"""
        left: list[Token] = [(tuple(path[: i + 1]), at) for i, (_, size) in enumerate(path) for at in range(size)]
        node, matched = self.root, 0
        while left:
            child = node.children.get(left[0])
            if child is None:
                child = node.children[left[0]] = Node(left, node)
                same = len(left)
            else:
                pairs = zip(child.tokens, left, strict=False)
                same = next((at for at, (one, other) in enumerate(pairs) if one != other), 0)
                same = same or min(len(child.tokens), len(left))
                matched += same
                if same < len(child.tokens):
                    upper = Node(child.tokens[:same], node, {child.tokens[same]: child}, set(child.gpus))
                    node.children[left[0]] = upper
                    child.tokens, child.parent = child.tokens[same:], upper
                    child = upper
            node, left = child, left[same:]
        for one in node.up():
            one.accessed_s = now
        return node, matched

    def load(self, gpu: int) -> int:
        return sum(node.count for node in self.root.all() if gpu in node.gpus)

    def cost(self, gpu: int) -> int:
        return sum(node.cost() for node in self.root.all() if gpu in node.gpus)

    def possible(self, node: Node, matched: int, loads: list[int]) -> set[int]:
        apart = max(loads) - min(loads) > self.policy.imbalance_abs_count
        ready = {gpu for gpu in range(self.gpus) if not apart or loads[gpu] == min(loads)}
        if matched > 0.5 * node.context():
            for one in node.up():
                if one.gpus & ready:
                    least = min(self.load(gpu) for gpu in one.gpus & ready)
                    return {gpu for gpu in one.gpus & ready if self.load(gpu) == least}
        return {min(ready, key=lambda gpu: (self.cost(gpu), gpu))}

    def took(self, node: Node, gpu: int, now: float) -> None:
        for one in node.up():
            one.gpus.add(gpu)
        self.window.append((now, node))
        node.count += 1
        node.prompts += node.context()
        node.hits += node.context() - len(node.tokens)


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[list[tuple[int, int]]], list[float], list[int]]:
    """Prompts with common beginnings, the seconds between them, and how many requests end before each."""
    steps = st.tuples(st.integers(0, 2), st.sampled_from([1, 30, 250, 900]))
    prompts = draw(st.lists(st.lists(steps, min_size=1, max_size=4), min_size=1, max_size=25))
    n = len(prompts)
    gaps = draw(st.lists(st.sampled_from([0.0, 0.5, 40.0, 100.0, 200.0]), min_size=n, max_size=n))
    return prompts, np.cumsum(gaps).tolist(), draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(streams(), st.integers(1, 4), st.sampled_from([1.0, 3.0, 5.0]))
def test_a_random_stream_is_decided_as_by_a_plain_tree(
    stream: tuple[list[list[tuple[int, int]]], list[float], list[int]], gpus: int, period: float
) -> None:
    """Also while nodes are split that have requests in the window, and after what they were sent has gone."""
    prompts, times, ends = stream
    policy = PrefixCachePreble(sliding_window_period=period, imbalance_abs_count=1)
    driven, model = Driven(policy, workload_of(prompts), gpus), Model(policy, gpus)
    loads, running = [0] * gpus, list[int]()
    for request, (path, now) in enumerate(zip(prompts, times, strict=True)):
        for _ in range(min(ends[request], len(running))):
            driven.finished(running[0], now)
            loads[int(driven.requests[running.pop(0)].gpu)] -= 1
        model.expire(now)
        node, matched = model.insert(path, now)
        possible = model.possible(node, matched, loads)
        assert set(driven.answers(request, now, 60)) == possible
        gpu = driven.decide(request, now)
        assert gpu in possible
        model.took(node, gpu, now)
        window = driven.mine.window
        assert window.load.tolist() == [model.load(one) for one in range(gpus)]
        assert np.abs(window.cost - [model.cost(one) for one in range(gpus)]).max() <= len(prompts)  # last digits
        driven.sends(request, gpu)
        loads[gpu] += 1
        running.append(request)


# ---------------------------------------------------------------- by hand
def test_costs_are_those_that_are_written_down() -> None:
    """200 new tokens of 200; 4,096 of 5,000; and 383, where the parabola is below zero."""
    v100, a6000 = FITS["V100"], FITS["A6000"]
    assert prefill_s(v100, 200, 200) == pytest.approx((-295 + 625 - 256 + 0.8) / 900)
    assert prefill_s(a6000, 200, 200) == pytest.approx((-118 + 250 - 102.4 + 0.32) / 900)
    square = -7.37 + 3.86e-3 * 4096 + 2.16e-6 * 4096**2
    line = 0.10842571 * 4096 + 4.209777054806409
    assert prefill_s(a6000, 4096, 5000) == pytest.approx((line + 1.86e-4 * 5000 + 0.159 + square) / 900)
    assert prefill_s(v100, 100, 2048) == pytest.approx((55 + (4.65e-4 * 2048 + 0.398) / 2) / 900)
    assert prefill_s(v100, 383, 383) < 0


def test_half_of_a_prompt_is_no_match() -> None:
    """Then it goes where the nodes cost least: the GPU that was sent nothing."""
    prompts = [[(0, 50)], [(0, 50), (1, 50)], [(0, 50), (2, 49)]]
    driven = Driven(PrefixCachePreble(), workload_of(prompts), 2)
    assert driven.decide(0, 0.0) == 0
    assert set(driven.answers(1, 0.0, 10)) == {1}
    assert set(driven.answers(2, 0.0, 10)) == {0}


def test_a_node_that_goes_takes_its_gpus_from_those_above() -> None:
    """After 301 s without it, its parent, sent to GPU 0 by two requests since, is known of none: a match by its half
    then goes by costs, to GPU 1."""
    prompts = [[(0, 90), (1, 60)], [(0, 90), (2, 60)], [(0, 90), (2, 60)], [(0, 90), (3, 10)]]
    for last, expected in ((300.5, 0), (301.5, 1)):
        driven = Driven(PrefixCachePreble(), workload_of(prompts), 2)
        assert [driven.decide(one, now) for one, now in ((0, 0.0), (1, 100.0), (2, 200.0))] == [0, 0, 0]
        assert driven.decide(3, last) == expected


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.uncompiled(False)
def test_it_passes_the_contract() -> None:
    check_policy(PrefixCachePreble(target_gpu="A6000", imbalance_abs_count=1))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("target_gpu", "H100"),
        ("decoding_length", 1.5),
        ("sliding_window_period", 5.1),
        ("imbalance_abs_count", -1),
    ],
)
def test_it_says_what_is_not_valid(field: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=rf"^policy\.{field}={value} is not valid; it must be"):
        replace(PrefixCachePreble(), **{field: value})
