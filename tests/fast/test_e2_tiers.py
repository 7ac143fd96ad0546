"""E2 that hears of tiers behind the caches: by hand, and against a plain model.

A token costs 1 ms to compute. A load from a host takes 10 ms and 0.1 ms a token, from a disk 20 and 0.2, from the store
for all 40 and 0.4.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.policies.e2 import E2
from tests.support.by_hand.e2 import loads, router
from tests.support.routers import Router
from tests.support.sampled import examples

pytestmark = pytest.mark.uncompiled

LOADS = ((0.01, 0.0001), (0.02, 0.0002), (0.04, 0.0004))
BELOW: dict[str, Any] = {"tiers": True, "loads_s": LOADS}
PLAIN: dict[str, Any] = {"decode": "none", "rebalance_threshold": None, "replicate_factor": None}
HOST, DISK, STORE = 0, 2, 4
"""the first two of GPU 0, where there are two"""


def computed_and_dropped(policy: E2, *prompts: str, **given: Any) -> Router:
    """GPU 0 has computed the first prompt, and its cache has nothing of it any more."""
    one = router(policy, *prompts, **BELOW | given)
    assert one.route(0.0) == 0
    one.finish(0, 1.0)
    one.evicted(0, 0, 0)
    return one


def copied(of: Router, place: int, tokens: int, request: int = 0) -> None:
    of.policy.copied(*of.handles, request, place, tokens, 1.0)  # type: ignore[attr-defined]


# ---------------------------------------------------------------- by hand
@pytest.mark.parametrize(
    ("copies", "gpu", "expected"),
    [
        ({}, 1, [0.7 + 0.7, 0.7]),  # explores
        ({HOST: 688}, 0, [0.7 + 0.01 + 0.06 + 0.1, 0.0]),  # exploits: S is loaded, b100 computed
        ({DISK: 688}, 0, [0.7 + 0.02 + 0.12 + 0.1, 0.0]),
        ({HOST: 400, DISK: 688}, 0, [0.7 + 0.06 + 0.1, 0.0]),  # at once: 50 ms from the host, 60 from the disk
        ({HOST: 560, DISK: 688}, 0, [0.7 + 0.066 + 0.1, 0.0]),  # 66 ms, and 28
        ({STORE: 688}, 1, [0.7 + 0.04 + 0.24 + 0.1, 0.04 + 0.24 + 0.1]),  # which every GPU has: explores
        ({HOST: 320, STORE: 688}, 1, [0.7 + 0.152 + 0.1, 0.38]),  # 320 of 700 are less than half; 152 ms for 280
        ({HOST: 352}, 0, [0.7 + 0.0452 + 0.348, 0.0]),  # more than half
        ({HOST: 336}, 1, [0.7 + 0.0436 + 0.364, 0.7]),
    ],
)
def test_what_tiers_have_costs_its_load(copies: dict[int, int], gpu: int, expected: list[float]) -> None:
    """S600 a100 was computed by GPU 0, which has dropped it: L = 0.7. S600 b100 comes, of which S can be found."""
    one = computed_and_dropped(E2(tiers=True, **PLAIN), "S600 a100", "S600 b100")
    for place, tokens in copies.items():
        copied(one, place, tokens)
    one.memory.gpus.load_s = 0.0
    assert one.route(2.0) == gpu
    np.testing.assert_allclose(loads(one), expected)
    if gpu == 0:  # what it cost counts in the window, where the third is all but computed
        assert one.memory.gpus[0].work_ns == round((expected[0]) * 1e9)


def test_a_tier_may_drop_it() -> None:
    """What lies behind 400 tokens: 50 ms and 300 computed; then all of it."""
    one = computed_and_dropped(E2(tiers=True, **PLAIN), *["S600 a100"] * 2, "S600 b100", "S600 c100")
    copied(one, HOST, 688)
    for tokens, gpu, expected in ((400, 0, [0.7 + 0.05 + 0.3, 0.0]), (0, 1, [1.05 + 0.7, 0.7])):
        one.policy.dropped(*one.handles, 0, HOST, tokens, 1.0)  # type: ignore[attr-defined]
        one.memory.gpus.load_s = 0.0
        assert one.route(2.0) == gpu
        np.testing.assert_allclose(loads(one), expected)
        one.finish(len(one.routed) - 1, 2.5)
        one.evicted(len(one.routed) - 1, gpu, 0)


@pytest.mark.parametrize(("place", "load_s"), [(HOST + 1, 0.07), (DISK + 1, 0.14)])
def test_a_cache_and_another_gpus_host_or_disk_both_hold_a_prefix(place: int, load_s: float) -> None:
    """GPU 0 has computed S600 a100, L = 0.7, and has it; GPU 1 has it in its host, or on its disk. S600 b100 takes 0.1
    on GPU 0, and on GPU 1 0.07 to load S as well (0.14 from the disk): 0.8 to 0.17 (0.24). S600 c100 takes 0.1 on
    either: S is in both caches by then."""
    one = router(E2(tiers=True, **PLAIN), "S600 a100", "S600 b100", "S600 c100", **BELOW)
    assert one.route(0.0) == 0
    copied(one, place, 688)
    assert one.route(1.0) == 1
    np.testing.assert_allclose(loads(one), [0.8, load_s + 0.1])
    assert one.route(1.0) == 1
    np.testing.assert_allclose(loads(one), [0.8, load_s + 0.2])


@pytest.mark.parametrize(
    ("copies", "seconds"),
    [({}, 0.2), ({HOST: 192}, 0.0292 + 0.008), ({HOST: 208}, 0.03), ({HOST: 96, DISK: 192}, 0.0392 + 0.008)],
)
def test_what_is_evicted_and_in_a_tier_costs_its_load(copies: dict[int, int], seconds: float) -> None:
    """One GPU: X200 has finished, and must go for Z100. M is what it takes to have X again: to compute 200 tokens; to
    load 192 and to compute 8; to load 200; or to load 96 from the host, 19.6 ms, 96 from the disk, 39.2 ms, and 8."""
    one = router(E2(tiers=True, request_cost=False, **PLAIN), "X200", "Z100", gpus=1, **BELOW)
    one.route(0.0)
    one.finish(0, 1.0)
    for place, tokens in copies.items():
        copied(one, place and 1, tokens)
    one.gpus[0].kv_free = 99
    one.route(2.0)
    assert loads(one)[0] == pytest.approx(0.2 + seconds)


def test_it_hears_nothing_of_tiers_unless_it_is_told_to_or_where_there_are_none() -> None:
    for policy, tiers in ((E2(**PLAIN), True), (E2(tiers=True, **PLAIN), False)):
        one = computed_and_dropped(policy, "S600 a100", "S600 b100", tiers=tiers)
        copied(one, HOST, 688)
        assert one.route(2.0) == 1


# ---------------------------------------------------------------- a plain model
class Plain:
    """E2 without windows, redirection, replicas, M and decoding, by sets of tokens, which paths name. Caches are as
    the router believes: they have all of each prompt that was sent there, until it is dropped."""

    def __init__(self, gpus: int, prompts: list[list[tuple[int, ...]]]) -> None:
        self.gpus, self.prompts, self.seen = range(gpus), prompts, list[list[tuple[int, ...]]]()
        self.caches: list[set[Any]] = [set() for _ in self.gpus]
        self.places: list[set[Any]] = [set() for _ in range(2 * gpus + 1)]
        self.work, self.unfinished = [0.0] * gpus, dict[int, int]()

    def _has(self, where: set[Any], prompt: list[Any]) -> int:
        """Leading tokens of a prompt, up to the last one that is there."""
        return max((at + 1 for at, token in enumerate(prompt) if token in where), default=0)

    def own(self, g: int, prompt: list[Any]) -> int:
        places = self.places[g], self.places[len(self.gpus) + g]
        return max(self._has(where, prompt) for where in (self.caches[g], *places))

    def cost_s(self, g: int, prompt: list[Any]) -> float:
        end, longest_s = self._has(self.caches[g], prompt), 0.0
        for tier, place in enumerate((g, len(self.gpus) + g, 2 * len(self.gpus))):
            there = self._has(self.places[place], prompt)
            if there > end:
                longest_s = max(longest_s, LOADS[tier][0] + LOADS[tier][1] * (there - end))
                end = there
        return longest_s + max(1, len(prompt) - end) * 1e-3

    def loads(self, request: int) -> dict[int, float]:
        """Of each GPU that may have it: those that have the longest match, if that is more than half of the prompt."""
        prompt = self.prompts[request]
        self.seen.append(prompt)
        longest = max(self.own(g, prompt) for g in self.gpus)
        ends = [sum(1 for a, b in zip(prompt, other, strict=False) if a == b) for other in self.seen]
        above = max((end for end in ends if end < longest), default=0)
        exploits = longest > len(prompt) - longest
        chosen = [g for g in self.gpus if not exploits or self.own(g, prompt) > above]
        return {g: self.work[g] + self.cost_s(g, prompt) for g in chosen}

    def send(self, request: int, g: int) -> None:
        self.work[g] += self.cost_s(g, self.prompts[request])
        self.caches[g] |= set(self.prompts[request])
        self.unfinished[request] = g

    def evict(self, request: int, g: int) -> None:
        """All of a prompt, but for what unfinished requests of the GPU go through."""
        used = {token for one, at in self.unfinished.items() if at == g for token in self.prompts[one]}
        self.caches[g] -= set(self.prompts[request]) - used


SEGMENTS = (64, 48, 32)
PROMPTS = st.lists(st.tuples(*[st.integers(0, 2)] * 3), min_size=8, max_size=30)
WORDS = st.lists(
    st.tuples(
        st.sampled_from(["finish", "evict", "copy", "copy", "copy", "drop"]), st.integers(0, 99), st.integers(0, 10)
    ),
    max_size=4,
)


@settings(max_examples=examples(60), deadline=None)
@given(PROMPTS, st.data(), st.integers(1, 3))
def test_it_chooses_as_the_plain_model(paths: list[tuple[int, ...]], data: st.DataObject, gpus: int) -> None:
    names = [
        " ".join(f"{chr(65 + 3 * i + one)}{size}" for i, (one, size) in enumerate(zip(path, SEGMENTS, strict=True)))
        for path in paths
    ]
    policy = E2(tiers=True, eviction_cost=False, decode_heavy_hit_ratio=None, **PLAIN)
    one = router(policy, *names, gpus=gpus, **BELOW)
    tokens = [[(*path[: i + 1], at) for i, size in enumerate(SEGMENTS) for at in range(size)] for path in paths]
    plain = Plain(gpus, tokens)
    for request in range(len(paths)):
        expected = plain.loads(request)
        g = one.route(float(request))
        assert g in expected
        assert expected[g] <= min(expected.values()) + 1e-9
        assert loads(one)[g] == pytest.approx(expected[g])
        plain.send(request, g)
        for what, number, blocks in data.draw(WORDS):
            of, place, until = number % (request + 1), number % (2 * gpus + 1), min(16 * blocks, sum(SEGMENTS))
            if what == "finish" and of in plain.unfinished:
                one.finish(of, request + 0.5)
                del plain.unfinished[of]
            elif what == "evict":
                one.evicted(of, place % gpus, 0)
                plain.evict(of, place % gpus)
            elif what == "copy" and until > 0:
                copied(one, place, until, of)
                plain.places[place] |= set(tokens[of][:until])
            elif what == "drop":
                policy.dropped(*one.handles, of, place, until, 1.0)
                plain.places[place] -= set(tokens[of][until:])
