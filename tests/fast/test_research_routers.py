"""Routers of papers and of their authors, against plain models on random streams, and by hand.

There are no recordings of them: what is compared is the arithmetic of their rules, as the specification has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.errors import InvalidInput
from prebleexp.policies.base import REFUSE, Policy
from prebleexp.policies.research.dualmap import DualMap
from prebleexp.policies.research.lbgr import Lbgr
from prebleexp.policies.research.least_prefill_work import LeastPrefillWork
from prebleexp.policies.research.llumnix_freeness import LlumnixFreeness
from prebleexp.policies.research.lmetric import LMetric
from prebleexp.policies.research.mooncake import Mooncake
from prebleexp.sim.addresses import COST
from prebleexp.sim.plug import Plug
from prebleexp.sim.signatures import COST as COSTS
from prebleexp.testing import check_policy
from tests.support.recordings.routers import Driven, Path_, common, workload_of
from tests.support.reference.prefix_sets import Model as Caches
from tests.support.routers import cost_of_a_token
from tests.support.sampled import examples

pytestmark = pytest.mark.uncompiled

MS_A_TOKEN = 1.0
HARDWARE = cost_of_a_token(MS_A_TOKEN)
KV = 1000


def driven(policy: Policy, prompts: Sequence[Path_], gpus: int, **setup: Any) -> Driven:
    """On GPUs that take `MS_A_TOKEN` for each token of a prefill."""
    made = Driven(policy, workload_of(prompts), gpus, **setup)
    made.plug = Plug(HARDWARE, HARDWARE.kernels(), HARDWARE.start(), COST, COSTS)  # type: ignore[attr-defined]
    made.view.put(("costs",), made.plug.repeated(gpus))  # type: ignore[attr-defined]
    return made


# ---------------------------------------------------------------- plain models
class Plain:
    """What every router may know: tokens of the prompt, those that each GPU holds of it, requests in flight."""

    believes = False
    """whether a prompt counts as held where it was sent, for good"""

    def __init__(self, gpus: int, router: Driven) -> None:
        self.router, self.in_flight, self.waiting = router, [0] * gpus, [dict[int, float]() for _ in range(gpus)]

    def queued(self, gpu: int) -> float:
        return sum(self.waiting[gpu].values())

    def choose(self, request: int, tokens: int, hits: list[int], now: float) -> int:
        raise NotImplementedError

    def adds(self, tokens: int, hit: int) -> float:
        return tokens - hit

    def sent(self, request: int, gpu: int, tokens: int, hits: list[int], now: float) -> None:
        self.in_flight[gpu] += 1
        self.waiting[gpu][request] = self.adds(tokens, hits[gpu])

    def first(self, request: int, gpu: int) -> None:
        del self.waiting[gpu][request]

    def finished(self, request: int, gpu: int, now: float) -> None:
        self.in_flight[gpu] -= 1


def first_least(scores: Sequence[Any]) -> int:
    return min(range(len(scores)), key=lambda gpu: (scores[gpu], gpu))


class PlainLMetric(Plain):
    def choose(self, request: int, tokens: int, hits: list[int], now: float) -> int:
        return first_least([(self.queued(g) + tokens - h) * (self.in_flight[g] + 1) for g, h in enumerate(hits)])


class NoQueue(PlainLMetric):
    """As the ports have it."""

    def queued(self, gpu: int) -> float:
        return 0


class NoFactor(PlainLMetric):
    def choose(self, request: int, tokens: int, hits: list[int], now: float) -> int:
        return first_least([self.queued(g) + tokens - h for g, h in enumerate(hits)])


class UntilTheEnd(PlainLMetric):
    """A prefill waits until its request is finished."""

    def first(self, request: int, gpu: int) -> None:
        pass

    def finished(self, request: int, gpu: int, now: float) -> None:
        super().finished(request, gpu, now)
        del self.waiting[gpu][request]


class PlainLeast(Plain):
    def choose(self, request: int, tokens: int, hits: list[int], now: float) -> int:
        return first_least([(self.queued(g) + tokens - h, self.in_flight[g]) for g, h in enumerate(hits)])


class PlainMooncake(Plain):
    slo_s = math.inf

    def adds(self, tokens: int, hit: int) -> float:
        return round(max(1, tokens - hit) * MS_A_TOKEN * 1e6)

    def choose(self, request: int, tokens: int, hits: list[int], now: float) -> int:
        times = [self.queued(g) + self.adds(tokens, h) for g, h in enumerate(hits)]
        best = self.pick(times)
        return REFUSE if times[best] > self.slo_s * 1e9 else best

    def pick(self, times: list[float]) -> int:
        return first_least(times)


class Limited(PlainMooncake):
    slo_s = 0.6


class PlainFetching(PlainMooncake):
    """What GPUs lack comes from the one that has most, if that is twice as much or more: .2 ms a token behind 20 ms."""

    def choose(self, request: int, tokens: int, hits: list[int], now: float) -> int:
        self.most = max(hits)
        return super().choose(request, tokens, hits, now)

    def adds(self, tokens: int, hit: int) -> float:
        if self.most > hit and self.most >= 2 * hit:
            return super().adds(tokens, self.most) + round(20e6 + (self.most - hit) * 0.2e6)
        return super().adds(tokens, hit)


class LastOfEquals(PlainMooncake):
    def pick(self, times: list[float]) -> int:
        return min(range(len(times)), key=lambda g: (times[g], -g))


class PlainDualMap(PlainMooncake):
    slo_s = 0.4

    def choose(self, request: int, tokens: int, hits: list[int], now: float) -> int:
        view = self.router.view.value
        row = view.requests[request]
        ids = view.prompts.ids[row.first_segment : row.first_segment + row.segments]
        ends = view.prompts.ends[row.first_segment : row.first_segment + row.segments]
        one, two = self.router.mine.hashes[ids[int(np.searchsorted(ends, min(PREFIX, tokens)))]].tolist()
        a = one % len(hits)
        others = [*range(a + 1, len(hits)), *range(a)]
        b = others[two % len(others)]
        times = [self.queued(g) + self.adds(tokens, h) for g, h in enumerate(hits)]
        keep, other = (a, b) if hits[a] >= hits[b] else (b, a)
        return int(keep if times[keep] <= self.slo_s * 1e9 or times[keep] <= times[other] else other)


class NoSlo(PlainDualMap):
    slo_s = math.inf


class AlwaysFaster(PlainDualMap):
    slo_s = 0.0


class PlainLlumnix(Plain):
    def choose(self, request: int, tokens: int, hits: list[int], now: float) -> int:
        return first_least([-self.free(g, self.router.gpus[g]) for g in range(len(hits))])

    def free(self, gpu: int, seen: Any) -> float:
        n = self.in_flight[gpu]
        return math.inf if n == 0 else (seen.kv_free + seen.evictable - self.taken(seen)) / n

    def taken(self, seen: Any) -> int:
        return int(seen.waiting_tokens)


class NothingWaits(PlainLlumnix):
    def taken(self, seen: Any) -> int:
        return 0


class PlainLbgr(Plain):
    believes, hysteresis, forgetting, tick_s = True, 1.0, 0.992, 0.020

    def __init__(self, gpus: int, router: Driven) -> None:
        super().__init__(gpus, router)
        self.backlog, self.theta, self.p, self.ticks = [0] * gpus, [0.0] * gpus, [1e6] * gpus, 0
        self.booked = dict[int, tuple[float, int, float]]()

    def melt(self, now: float) -> None:
        while self.ticks < int(now / self.tick_s):
            self.ticks += 1
            self.backlog = [one * 31 // 32 for one in self.backlog]

    def base(self, tokens: int, hit: int) -> float:
        return max(1.0, 4.0 * (tokens - hit))

    def choose(self, request: int, tokens: int, hits: list[int], now: float) -> int:
        self.melt(now)
        best, least = 0, math.inf
        for g, hit in enumerate(hits):
            predicted = max(1.0, self.base(tokens, hit) + self.backlog[g] + self.theta[g])
            if predicted + self.hysteresis < least:
                best, least = g, predicted
        return best

    def sent(self, request: int, gpu: int, tokens: int, hits: list[int], now: float) -> None:
        super().sent(request, gpu, tokens, hits, now)
        base = self.base(tokens, hits[gpu])
        self.booked[request] = base, self.backlog[gpu], now
        self.backlog[gpu] += round(base)

    def finished(self, request: int, gpu: int, now: float) -> None:
        super().finished(request, gpu, now)
        self.melt(now)
        base, before, sent_s = self.booked[request]
        left = math.floor(round(base) * (31 / 32) ** int((now - sent_s) / self.tick_s) + 0.5)
        self.backlog[gpu] = max(0, self.backlog[gpu] - left)
        gain = self.p[gpu] / (self.forgetting + self.p[gpu])
        self.theta[gpu] += gain * (max(1.0, 1000.0 * (now - sent_s) - (base + before)) - self.theta[gpu])
        self.p[gpu] = (self.p[gpu] - gain * self.p[gpu]) / self.forgetting


class AnyBetter(PlainLbgr):
    hysteresis = 0.0


class NeverMelts(PlainLbgr):
    tick_s = 1e9


class LearnsNothing(PlainLbgr):
    def finished(self, request: int, gpu: int, now: float) -> None:
        super().finished(request, gpu, now)
        self.theta[gpu] = 0.0


class ForgetsFaster(PlainLbgr):
    forgetting = 0.95


PREFIX = 150
LENT = (*((math.inf, math.inf),) * 3, (0.02, 0.0002))
"""what loads from other GPUs take, and there are no tiers"""
ROUTERS: dict[str, tuple[Callable[[], Policy], type[Plain], tuple[type[Plain], ...]]] = {
    "lmetric": (LMetric, PlainLMetric, (NoQueue, NoFactor, UntilTheEnd)),
    "least_prefill_work": (LeastPrefillWork, PlainLeast, (NoFactor, PlainLMetric)),
    "mooncake": (Mooncake, PlainMooncake, (LastOfEquals, PlainLMetric, Limited)),
    "mooncake with an SLO": (lambda: Mooncake(Limited.slo_s), Limited, (PlainMooncake,)),
    "mooncake that fetches": (lambda: Mooncake(balancing_threshold=2.0), PlainFetching, (PlainMooncake,)),
    "dualmap": (lambda: DualMap(PREFIX, PlainDualMap.slo_s), PlainDualMap, (NoSlo, AlwaysFaster, PlainMooncake)),
    "llumnix_freeness": (LlumnixFreeness, PlainLlumnix, (NothingWaits, PlainLMetric)),
    "lbgr": (Lbgr, PlainLbgr, (AnyBetter, NeverMelts, LearnsNothing, ForgetsFaster)),
}
"""the policy, its model, and models that are wrong"""


def stream(rng: np.random.Generator, requests: int) -> list[Path_]:
    """Some of 3 groups, in some of 4 branches, some alike to the last token."""
    paths: list[Path_] = []
    for number in range(requests):
        group, branch = int(rng.integers(3)), int(rng.integers(4))
        alike = bool(rng.random() < 0.2)
        own = (9, 7) if alike else (1000 + number, int(rng.integers(1, 8)) * 10)
        paths.append([(group, 100 * (1 + group)), (10 + branch, 40), own])
    return paths


def disagreements(name: str, models: Sequence[type[Plain]], seed: int, requests: int = 60, gpus: int = 4) -> list[int]:
    """In a random stream that goes where the policy sends it, how often each model decides otherwise."""
    rng = np.random.default_rng(seed)
    prompts = stream(rng, requests)
    router = driven(ROUTERS[name][0](), prompts, gpus, loads_s=LENT)
    caches, plain = Caches(workload_of(prompts), gpus), [model(gpus, router) for model in models]
    differ, now, arrived = [0] * len(models), 0.0, 0
    waiting: list[int] = []
    running: list[int] = []
    while arrived < requests:
        now += float(rng.exponential(0.04))
        kind = rng.choice(["arrive", "first", "finish", "evict", "report"], p=[0.4, 0.25, 0.2, 0.1, 0.05])
        if kind == "arrive":
            request, arrived = arrived, arrived + 1
            tokens = sum(size for _, size in prompts[request])
            hits = [caches.matched(request, gpu) for gpu in range(gpus)]
            chosen = [model.choose(request, tokens, hits, now) for model in plain]
            gpu = router.decide(request, now)
            differ = [count + (one != gpu) for count, one in zip(differ, chosen, strict=True)]
            if gpu != REFUSE:
                router.sends(request, gpu)
                waiting.append(request)
                for model in plain:
                    model.sent(request, gpu, tokens, hits, now)
                if plain[0].believes:
                    caches.store(request, gpu, tokens)
        elif kind == "first" and waiting:
            request = waiting.pop(int(rng.integers(len(waiting))))
            running.append(request)
            gpu = int(router.requests[request].gpu)
            router.first_token(request, now)
            tokens = int(router.requests[request].prompt_tokens)
            router.stored(request, gpu, tokens, now)
            for model in plain:
                model.first(request, gpu)
            if not plain[0].believes:
                caches.store(request, gpu, tokens)
        elif kind == "finish" and running:
            request = running.pop(int(rng.integers(len(running))))
            gpu = int(router.requests[request].gpu)
            router.finished(request, now)
            for model in plain:
                model.finished(request, gpu, now)
        elif kind == "evict" and arrived:
            request, gpu, tokens = int(rng.integers(arrived)), int(rng.integers(gpus)), int(rng.integers(300))
            for other in range(arrived):  # a cache drops what hangs below a prefix before the prefix
                if common(prompts[other], prompts[request]) > tokens:
                    router.evicted(other, gpu, tokens, now)
                    if not plain[0].believes:
                        caches.forget(other, gpu, tokens)
        elif kind == "report":
            for seen in router.gpus:
                seen.kv_free, seen.evictable, seen.waiting_tokens = rng.integers(KV, size=3) * (4, 2, 1)
    return differ


@pytest.mark.slow
@pytest.mark.parametrize("name", ROUTERS)
@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_decisions_are_those_of_a_plain_model(name: str, seed: int) -> None:
    assert disagreements(name, [ROUTERS[name][1]], seed) == [0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ROUTERS)
def test_wrong_rules_are_caught(name: str) -> None:
    _, right, wrong = ROUTERS[name]
    runs = [disagreements(name, (right, *wrong), seed, gpus=5) for seed in range(12)]
    caught = np.sum(runs, axis=0)
    print(
        {model.__name__: f"{count} of {60 * len(runs)}" for model, count in zip((right, *wrong), caught, strict=True)}
    )
    assert caught[0] == 0
    assert (caught[1:] > 0).all()


# ---------------------------------------------------------------- by hand
SAME: list[Path_] = [[(0, 100)]] * 8
OTHERS: list[Path_] = [[(number, 100)] for number in range(8)]


def sends(router: Driven, request: int, now: float = 0.0) -> int:
    gpu = router.decide(request, now)
    router.sends(request, gpu)
    return gpu


def test_lmetric_scores_a_full_hit_zero_however_many_decode_there() -> None:
    router = driven(LMetric(), SAME, 3)
    router.stored(0, 1, 100, 0.0)
    for request in range(6):
        assert sends(router, request) == 1, "(0 + 0) · (n + 1) = 0, and 100 elsewhere"
        router.first_token(request, 0.0)


def test_lmetric_multiplies() -> None:
    router = driven(LMetric(), [[(number, size)] for number, size in enumerate((100, 30, 100, 20, 10))], 2)
    assert sends(router, 0) == 0, "the first of equals"
    assert sends(router, 1) == 1, "130 · 2 against 30 · 1"
    router.first_token(0, 0.0)
    router.finished(0, 0.0)
    assert sends(router, 2) == 0, "100 · 1 against 130 · 2"
    router.first_token(1, 0.0)
    assert sends(router, 3) == 1, "120 · 2 against 20 · 2"
    router.first_token(2, 0.0)
    assert sends(router, 4) == 0, "10 · 2 against 30 · 3"


def test_least_prefill_work_breaks_ties_by_requests() -> None:
    router = driven(LeastPrefillWork(), OTHERS, 2)
    assert sends(router, 0) == 0
    router.first_token(0, 0.0)
    assert sends(router, 1) == 1, "100 on both, of which the first has a request"
    router.first_token(1, 0.0)
    assert sends(router, 2) == 0, "all the same: the first"
    assert sends(router, 3) == 1, "200 against 100"


def test_mooncake_needs_a_shorter_time_to_leave_the_first() -> None:
    router = driven(Mooncake(), [[(number, size)] for number, size in enumerate((100, 100, 50, 51, 10))], 2)
    assert [sends(router, request) for request in (0, 1)] == [0, 1]
    assert sends(router, 2) == 0, "150 ms on both"
    assert sends(router, 3) == 1, "201 ms against 151"
    assert sends(router, 4) == 0, "160 ms against 161"


def test_mooncake_refuses_what_would_come_too_late() -> None:
    router = driven(Mooncake(0.2), OTHERS, 1)
    assert [sends(router, request) for request in (0, 1)] == [0, 0], "100 and 200 ms: not more than the SLO"
    assert router.decide(2, 0.0) == REFUSE
    router.first_token(0, 0.0)
    assert sends(router, 2) == 0, "what was refused is in no book"


FETCHED: list[Path_] = [[(0, 1000)], [(0, 1000), (1, 100)], [(0, 1000), (2, 100)], [(3, 5)]]


@pytest.mark.parametrize(
    ("policy", "load_s", "token_s", "gpu", "booked_ms"),
    [
        (Mooncake(balancing_threshold=1.0), 0.05, 0.0001, 1, 250),  # 1: 50 + 1,000 · .1 + 100; 0: 300 + 100
        (Mooncake(balancing_threshold=1.0), 0.05, 0.0003, 0, 100),  # 1: 50 + 300 + 100, longer than 400
        (Mooncake(), 0.05, 0.0001, 0, 100),  # it knows of no store: 1 takes 1,100
        (Mooncake(balancing_threshold=1.0), math.inf, math.inf, 0, 100),  # there is none
    ],
)
def test_mooncake_fetches_what_a_store_has_where_that_is_sooner(
    policy: Mooncake, load_s: float, token_s: float, gpu: int, booked_ms: int
) -> None:
    router = driven(policy, FETCHED, 2, loads_s=((load_s, token_s),) * 4)
    assert sends(router, 0) == 0
    router.first_token(0, 0.0)
    router.stored(0, 0, 1000, 0.0)
    router.mine.queued[0] += 300_000_000
    assert sends(router, 1) == gpu
    assert router.mine.booked[1] == booked_ms * 1_000_000


def test_mooncake_fetches_from_a_threshold_on() -> None:
    """GPU 1 has 500 of 1,000 tokens: twice as many are not more than three times as many."""
    for threshold, gpu in ((2.0, 1), (3.0, 0)):
        router = driven(Mooncake(balancing_threshold=threshold), FETCHED, 2, loads_s=((0.0, 0.0),) * 4)
        assert sends(router, 0) == 0
        router.first_token(0, 0.0)
        router.stored(0, 0, 1000, 0.0)
        router.stored(0, 1, 500, 0.0)
        router.mine.queued[0] += 300_000_000
        assert sends(router, 1) == gpu, "100 ms with what is fetched, 600 without, 400 at GPU 0"


def test_mooncake_fetches_what_another_gpu_has_and_a_store_comes_first() -> None:
    """At GPU 1, of 1,000 tokens: 20 + 1,000 · .2 + 100 ms from GPU 0, 1,100 once that has dropped them, and 50 + 300 +
    100 from a store, which has them still."""
    for store, lent, dropped in (((math.inf, math.inf), 320, 1100), ((0.05, 0.0003), 450, 450)):
        loads_s = (*((math.inf, math.inf),) * 2, store, LENT[3])
        router = driven(Mooncake(balancing_threshold=1.0), FETCHED, 2, loads_s=loads_s)
        assert sends(router, 0) == 0
        router.first_token(0, 0.0)
        router.stored(0, 0, 1000, 0.0)
        router.mine.queued[0] += 2_000_000_000
        assert sends(router, 1) == 1
        assert router.mine.booked[1] == lent * 1_000_000
        router.first_token(1, 0.0)
        router.evicted(0, 0, 0, 0.0)
        assert sends(router, 2) == 1
        assert router.mine.booked[2] == dropped * 1_000_000


def test_a_store_keeps_what_gpus_drop() -> None:
    router = driven(Mooncake(balancing_threshold=1.0), FETCHED, 2, loads_s=((0.0, 0.0),) * 4)
    assert sends(router, 0) == 0
    router.first_token(0, 0.0)
    router.stored(0, 0, 1000, 0.0)
    router.evicted(0, 0, 0, 0.0)
    assert sends(router, 1) == 0
    assert router.mine.booked[1] == 100_000_000, "the first of equals, with all that the store has"


@pytest.mark.parametrize("threshold", [0.5, float("nan"), "1"])
def test_mooncake_refuses_a_bad_threshold(threshold: Any) -> None:
    with pytest.raises(InvalidInput, match=r"policy\.balancing_threshold"):
        Mooncake(balancing_threshold=threshold)


def test_dualmap_leaves_the_cache_when_it_would_be_late() -> None:
    router = driven(DualMap(slo_ttft_s=0.3), [[(0, 300)]] * 6, 8)
    router.requests[5].slo_ttft_s = 0.7
    first = sends(router, 0)
    router.first_token(0, 0.0)
    router.stored(0, first, 300, 0.0)
    assert sends(router, 1) == first
    queued = router.mine.queued
    assert queued[first] == 1_000_000, "one token is computed of a full hit"
    queued[first] = 299_000_000
    assert sends(router, 2) == first, "300 ms, in time"
    other = sends(router, 3)
    assert other != first, "301 ms against 300"
    assert sends(router, 4) == first, "301 ms against 600"
    queued[first] = 650_000_000
    assert sends(router, 5) == first, "651 ms, and it was promised 700"


def test_dualmap_has_two_gpus_for_a_prefix() -> None:
    prompts: list[Path_] = [[(number % 2, 256), (10 + number, 50)] for number in range(40)]
    router = driven(DualMap(slo_ttft_s=0.001), prompts, 16)
    gpus = [sends(router, request) for request in range(40)]
    assert [len({*gpus[first::2]}) for first in (0, 1)] == [2, 2]


def test_llumnix_counts_memory_a_request() -> None:
    router = driven(LlumnixFreeness(), OTHERS, 3)
    assert [sends(router, request) for request in range(3)] == [0, 1, 2], "those without requests first"
    router.gpus.kv_free, router.gpus.evictable = (300, 200, 100), (0, 150, 0)
    assert sends(router, 3) == 1, "350 / 1"
    assert sends(router, 4) == 0, "300 against 350 / 2"
    router.gpus[2].kv_free, router.gpus[0].waiting_tokens = 160, 0
    assert sends(router, 5) == 1, "150, 175 and 160"
    router.gpus.waiting_tokens = (0, 0, 200)
    assert sends(router, 6) == 0, "150, 350 / 3 and less than nothing"


def test_lbgr_melts() -> None:
    router = driven(Lbgr(characters_per_token=1.0), OTHERS, 1)
    sends(router, 0, 0.0)
    backlog = router.mine.workers.backlog
    assert backlog[0] == 100
    router.decide(1, 0.019)
    assert backlog[0] == 200, "nothing has melted"
    router.decide(2, 0.021)
    assert backlog[0] == 193 + 100
    router.decide(3, 0.061)
    assert backlog[0] == 283 * 31 // 32 + 100
    router.decide(4, 20.0)
    assert backlog[0] == 100, "all of it but this one's"


def test_lbgr_takes_a_later_gpu_only_if_it_is_better_by_more_than_1_ms() -> None:
    for held, gpu in ((1, 0), (2, 1)):
        router = driven(Lbgr(characters_per_token=1.0), [[(0, 1), (1, 98), (2, 1)], [(0, 1), (3, 99)]], 2)
        if held == 2:
            router = driven(Lbgr(characters_per_token=1.0), [[(0, 2), (1, 97), (2, 1)], [(0, 2), (3, 98)]], 2)
        router.mine.workers[0].backlog = 500
        assert sends(router, 0) == 1
        router.mine.workers.backlog = 0
        assert router.decide(1, 0.0) == gpu


def test_lbgr_learns_what_its_backlog_does_not_explain() -> None:
    router = driven(Lbgr(characters_per_token=1.0), OTHERS, 2)
    sends(router, 0)
    router.finished(0, 0.5)
    worker = router.mine.workers[0]
    assert worker.backlog == 0
    assert worker.residual == pytest.approx(400, abs=0.001), "500 ms less the 100 of its characters"
    assert sends(router, 1, 0.5) == 1
    router.finished(1, 0.55)
    assert router.mine.workers[1].residual == pytest.approx(1, abs=0.001), "50 ms less 100, but 1 at least"
    assert worker.variance == pytest.approx(1.0, abs=0.001), "0.992 of it are forgotten, of next to none"


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda: Mooncake(0.0), "policy.ttft_slo_s=0.0"),
        (lambda: DualMap(0), "policy.prefix_tokens=0"),
        (lambda: DualMap(slo_ttft_s=-1.0), "policy.slo_ttft_s=-1.0"),
        (lambda: Lbgr(0.0), "policy.characters_per_token=0.0"),
        (lambda: Lbgr(forgetting=1.5), "policy.forgetting=1.5"),
    ],
)
def test_settings_that_are_not_valid_are_named(wrong: Callable[[], Policy], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        wrong()


@pytest.mark.slow
@pytest.mark.parametrize("policy", [LMetric, LeastPrefillWork, Mooncake, DualMap, LlumnixFreeness, Lbgr])
def test_the_contract_of_policies_holds(policy: Callable[[], Policy]) -> None:
    check_policy(policy())
