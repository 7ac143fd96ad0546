"""E2 as the papers describe it, on examples small enough to check on paper.

A token costs 1 ms, whether computed or generated: a prompt of 700 tokens is 0.7 s of prefill, and 100 tokens of
output are 0.1 s of decoding. "S600 a100" is a prompt of 600 tokens that others share and 100 of its own.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from prebleexp.errors import InvalidInput
from prebleexp.policies.e2 import E2
from prebleexp.sim.records import ENTRIES
from tests.support.by_hand.e2 import loads, router
from tests.support.routers import Router, links_of

pytestmark = pytest.mark.uncompiled


# ---------------------------------------------------------------- exploit or explore
@pytest.mark.slow
def test_more_than_half_cached_goes_to_the_gpu_that_has_it() -> None:
    """S600 a100, 100 of output: both GPUs have load 0 + P 0.7; GPU 0.
    T300: GPU 0 has L = 0.7 + 0.1 and P = 0.3, 1.1 in all; GPU 1 0.3. Explore: GPU 1, which then has L = 0.3 + 0.1.
    S600 b100: 600 > 100 are cached on GPU 0. Exploit, though GPU 0 has the higher load: L = 0.8, P = 0.1.
    """
    one = router(E2(), "S600 a100", "T300", "S600 b100", outputs=100.0)
    assert one.route(0) == 0
    np.testing.assert_allclose(loads(one), [0.7, 0.7])
    assert one.route(1) == 1
    np.testing.assert_allclose(loads(one), [1.1, 0.3])
    assert one.route(2) == 0
    assert loads(one)[0] == pytest.approx(0.9)


@pytest.mark.parametrize(("own", "gpu"), [(299, 0), (300, 1), (301, 1)])
def test_half_is_not_more_than_half(own: int, gpu: int) -> None:
    """S300 with 500 of output: GPU 0, L = 0.8. S300 and 300 of its own: as many are new as are cached, so explore:
    0.8 + 0.3 on GPU 0, 0 + 0.6 on GPU 1. One token less is exploited."""
    one = router(E2(), "S300", f"S300 b{own}", outputs=500.0)
    assert [one.route(0), one.route(1)] == [0, gpu]


@pytest.mark.parametrize(("request_cost", "gpu", "expected"), [(True, 0, [0.65, 0.701]), (False, 1, [0.35, 0.101])])
def test_what_the_request_costs_counts(request_cost: bool, gpu: int, expected: list[float]) -> None:
    """S300, 50 of output: GPU 0, L = 0.35. T100, 1 of output: GPU 1, L = 0.101. S300 c300 explores: P is 0.3 on GPU
    0, which holds S, and 0.6 on GPU 1: 0.65 to 0.701. Without P: 0.35 to 0.101."""
    one = router(E2(request_cost=request_cost), "S300", "T100", "S300 c300", outputs=[50.0, 1.0, 1.0])
    assert [one.route(0), one.route(1)] == [0, 1]
    assert one.route(2) == gpu
    np.testing.assert_allclose(loads(one), expected)


def test_a_request_computes_one_token_at_least() -> None:
    """The same prompt again is cached in full: P = 0.001."""
    one = router(E2(decode="none"), "S300", "S300")
    assert [one.route(0), one.route(1)] == [0, 0]
    assert loads(one)[0] == pytest.approx(0.3 + 0.001)


@pytest.mark.parametrize(("finished", "gpu"), [(True, 1), (False, 0)])
def test_what_a_gpu_dropped_is_not_cached(finished: bool, gpu: int) -> None:
    """GPU 0 reports that it dropped S600 a100, so that nothing is known to be cached. L is 0.7 there: explore to GPU 1.
    While the request is unfinished, its tokens must come back: exploit."""
    one = router(E2(decode="none"), "S600 a100", "S600 b100")
    one.route(0)
    if finished:
        one.finish(0, 1)
    one.evicted(0, 0, 0)
    assert one.route(2) == gpu


# ---------------------------------------------------------------- load
@pytest.mark.parametrize(
    ("decode", "unfinished", "finished"), [("none", 0.1, 0.1), ("remaining", 0.35, 0.1), ("total", 0.5, 0.9)]
)
def test_output_in_the_load(decode: str, unfinished: float, finished: float) -> None:
    """S100, 400 of output, of which 150 are generated: 0.1 of prefill and 0.25 to come, or 0.4 in all.
    It finishes with 3 ms a token; the median of that and 1 ms, which one request alone takes, is 2 ms. Nothing is to
    come, or in all 400 · 2 ms = 0.8.
    """
    one = router(E2(decode=decode, request_cost=False), "S100", "T1", "U1", outputs=[400.0, 0.0, 0.0])
    one.route(0)
    one.gpus[0].generated = 150
    one.route(1)
    assert loads(one)[0] == pytest.approx(unfinished)
    one.gpus[0].generated = 0
    one.finish(0, 2, 0.1, 0.003)
    one.route(3)
    assert loads(one)[0] == pytest.approx(finished)


@pytest.mark.slow
def test_the_load_is_that_of_the_window() -> None:
    """H = 10 s. S500 at 0 s counts at 10 s, and no more at 10.5 s; its prompt is forgotten then, since it has
    finished."""
    one = router(E2(window_s=10, decode="none", request_cost=False), "S500", "T100", "U100", "S500")
    one.route(0)
    one.finish(0, 1)
    assert one.route(10) == 1
    np.testing.assert_allclose(loads(one), [0.5, 0.0])
    assert one.route(10.5) == 0
    np.testing.assert_allclose(loads(one), [0.0, 0.1])
    assert one.route(10.6) == 0  # explores: both have 0.1
    np.testing.assert_allclose(loads(one), [0.1, 0.1])


@pytest.mark.parametrize(
    ("eviction_cost", "free", "gpu", "expected"),
    [
        (True, 110, 0, [0.3, 0.35]),  # 100 new tokens and 10 of output just fit
        (True, 109, 1, [0.5, 0.35]),  # X must go, which GPU 0's only request of the window uses: M = 0.2 · 1
        (False, 109, 0, [0.3, 0.35]),
    ],
)
def test_eviction_costs_what_it_takes_to_compute_again(
    eviction_cost: bool, free: int, gpu: int, expected: list[float]
) -> None:
    """X200 on GPU 0 and Y250 on GPU 1 have finished: L = 0.2 and 0.25. Z100 costs 0.1 on either."""
    one = router(E2(eviction_cost=eviction_cost), "X200", "Y250", "Z100", outputs=10.0)
    assert [one.route(0), one.route(1)] == [0, 1]
    one.finish(0, 2)
    one.finish(1, 2)
    one.gpus[0].kv_free = free
    assert one.route(3) == gpu
    np.testing.assert_allclose(loads(one), expected)


def test_few_gpus_are_asked_what_they_would_evict() -> None:
    """The least loaded without it is the first that is asked: here none of six could be before that one but another,
    whatever their order. That is nodes looked at, one for each GPU that is asked."""
    for tokens in ([100, 200, 400, 800, 1600, 3200], [3200, 1600, 800, 400, 200, 100]):
        prompts = [f"{letter}{size}" for letter, size in zip("ABCDEF", tokens, strict=True)]
        one = router(E2(rebalance_threshold=None), *prompts, "Z50", gpus=6, counted=False)
        assert [one.route(0) for _ in prompts] == list(range(6))
        for i in range(6):
            one.finish(i, 1)
        one.gpus.kv_free = 0
        before = int(one.seen.work[ENTRIES])
        assert one.route(2) == tokens.index(100)
        assert int(one.seen.work[ENTRIES]) - before <= 2


@pytest.mark.parametrize(
    ("free", "running", "seconds"),
    [
        (300, [], 0.0),  # 100 fit
        (60, [], 0.1 / 3),  # 40 tokens: X100 goes, which 1 of the 3 requests uses
        (10, [], 0.1 / 3),  # 90 tokens: likewise
        (0, [0], 0.2 * 2 / 3),  # X is in use: Y200 goes, with both its requests
        (-50, [], 0.1 / 3 + 0.2 * 2 / 3),  # 150 tokens: X, then Y
        (-50, [0, 1, 2], 0.0),  # nothing can go
    ],
)
def test_the_least_recently_used_goes_first(free: int, running: list[int], seconds: float) -> None:
    """One GPU: X100, then Y200 twice. Z100 comes, of no output. L = 0.1 + 0.2 + 0.001."""
    one = router(E2(request_cost=False), "X100", "Y200", "Y200", "Z100", gpus=1)
    for i in range(3):
        one.route(i)
        if i not in running:
            one.finish(i, i)
    one.gpus[0].kv_free = free
    one.route(5)
    assert loads(one)[0] == pytest.approx(0.301 + seconds)


@pytest.mark.parametrize(
    ("ratio", "hits", "gpu"),
    [
        (0.7, (70, 0), 0),  # prefill-heavy work goes where decoding is most of the work
        (0.7, (69, 0), 1),
        (0.7, (70, 70), 1),  # of several, to the least loaded
        (0.7, (70, 69), 0),
        (None, (100, 0), 1),
        (0.5, (50, 0), 0),
    ],
)
def test_exploring_prefers_gpus_that_mostly_decode(ratio: float | None, hits: tuple[int, int], gpu: int) -> None:
    """S300: GPU 0, so that GPU 1 has the lesser load for T300."""
    one = router(E2(decode_heavy_hit_ratio=ratio), "S300", "T300")
    one.route(0)
    one.gpus.window_prompt_tokens = 100
    one.gpus.window_hit_tokens = hits
    assert one.route(1) == gpu


# ---------------------------------------------------------------- rebalancing
REDIRECTED = ("S600 a100", "T300 a100", "T300 b100", "T300 c100", "T300 d100", "S600 b100")


def successors(of: Router, prefix: int) -> dict[int, int]:
    """Who serves a prefix in whose place."""
    tree = of.memory.tree
    links = links_of(tree, int(tree.prefixes[prefix].node))
    accounts = {int(tree.rows[link].gpu): tree.accounts[link] for link in links}
    return {gpu: int(account.successor) for gpu, account in accounts.items() if account.relieved}


@pytest.mark.parametrize(("threshold", "gpus"), [(1.5, [0, 0, 0, 1, 1, 0]), (None, [0] * 6)])
def test_a_prefix_is_redirected_to_the_least_loaded_once(threshold: float | None, gpus: list[int]) -> None:
    """GPU 0 mostly decodes, so that S and T both go there; without output.

    S600 a100: 0.7. T300 a100: 0.4. Neither prefix is shared yet. T300 b100: 0.1. GPU 0 has 1.2, GPU 1 nothing: the
    cheapest shared prefix, T with 0.5, is GPU 1's from now on: 0.7 to 0.5, less than 1.5 times.
    T300 c100 goes to GPU 1, where it costs 0.4: 0.7 to 0.9. T300 d100 too: 0.7 to 1.0. S stays. Nothing is redirected
    again.
    """
    one = router(E2(rebalance_threshold=threshold), *REDIRECTED)
    one.gpus[0].window_prompt_tokens = one.gpus[0].window_hit_tokens = 1
    made, moved = [], []
    for i in range(6):
        made.append(one.route(i))
        moved.append(successors(one, int(one.memory.routed[1 if i else 0].prefix)))
    assert made == gpus
    assert moved == ([{}] * 2 + [{0: 1}] * 4 if threshold else [{}] * 6)


def test_a_prefix_is_not_redirected_if_that_turned_the_two_around() -> None:
    """S600 a100 and S600 b100 are all that GPU 0 has: moved, GPU 1 would have what GPU 0 had."""
    one = router(E2(), "S600 a100", "S600 b100", "S600 c100")
    assert [one.route(i) for i in range(3)] == [0, 0, 0]
    assert successors(one, int(one.memory.routed[0].prefix)) == {}


@pytest.mark.parametrize(("threshold", "moves"), [(1.2, True), (3.0, False)])
def test_the_threshold_is_that_of_most_to_least(threshold: float, moves: bool) -> None:
    """U800: GPU 0. S500 a100, T100 a10 and T100 b10: GPU 1, told to be the one that decodes; 0.6 + 0.11 + 0.01 = 0.72.
    S500 b900 is not half cached and explores there: 0.9 more, 1.62, twice the 0.8 of GPU 0. T's 0.12 moves: 1.5 to
    0.92."""
    policy = E2(rebalance_threshold=threshold, replicate_factor=None)
    one = router(policy, "U800", "S500 a100", "T100 a10", "T100 b10", "S500 b900", "T100 c10")
    assert one.route(0) == 0
    one.gpus[1].window_prompt_tokens = one.gpus[1].window_hit_tokens = 1
    assert [one.route(i) for i in range(1, 5)] == [1] * 4
    assert one.route(5) == (0 if moves else 1)


# ---------------------------------------------------------------- replication
@pytest.mark.parametrize(
    ("factor", "delay", "gpu"), [(2.0, 1.0, 1), (2.0, 0.99, 0), (3.0, 1.0, 0), (3.0, 1.5, 1), (None, 9.0, 0)]
)
def test_a_prefix_whose_delay_doubles_is_replicated(factor: float | None, delay: float, gpu: int) -> None:
    """H = 100 s, so halves of 50 s. S600 a100 has its first token 0.7 s of prefill and 0.5 s of waiting after it
    came, at 1 s. S600 b100 waits `delay` beside its 0.1 s of prefill, at 61 s. At 62 s the first lies in the first
    half of the window, the other in the second: if the delay has grown by the factor, the least loaded GPU may cache
    S too. S600 c100 itself still goes to GPU 0. S600 d100 then has 0.7 + 0.1 + 0.1 and P = 0.1 on GPU 0, and 0 + 0.7
    on GPU 1.
    """
    prompts = ("S600 a100", "S600 b100", "S600 c100", "S600 d100")
    one = router(E2(window_s=100, replicate_factor=factor, decode="none"), *prompts, gpus=3)
    assert one.route(0) == 0
    one.finish(0, 1, 0.7 + 0.5)
    assert one.route(60) == 0
    one.finish(1, 61, 0.1 + delay)
    assert one.route(62) == 0
    assert one.route(63) == gpu


# ---------------------------------------------------------------- fields
@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("window_s", [0, -1, math.nan, math.inf, "a", True, None]),
        ("rebalance_threshold", [0.9, math.nan, math.inf, "a", True]),
        ("replicate_factor", [0.5, -2, "a", False]),
        ("decode_heavy_hit_ratio", [0, 1.01, -1, math.nan, "a"]),
        ("eviction_cost", [1, None, "true"]),
        ("request_cost", [0, None]),
        ("tiers", [1, "no"]),
        ("recompute", [2, "no"]),
        ("decode", ["all", None, 1]),
    ],
)
def test_a_field_that_is_not_valid_is_one_line(field: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(InvalidInput) as error:
            E2(**{field: value})
        assert str(error.value).startswith(f"policy.{field}={value} is not valid; it must be ")
        assert "\n" not in str(error.value)
