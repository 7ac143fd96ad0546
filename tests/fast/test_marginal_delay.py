"""The router that charges a decision with the delay of others: decision for decision and term for term as a plain
model has it, and by hand."""

from __future__ import annotations

import math
from dataclasses import fields
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.errors import InvalidInput
from prebleexp.policies.marginal.book import TERMS
from prebleexp.policies.marginal.policy import MarginalDelay
from prebleexp.sim.addresses import COST
from prebleexp.sim.plug import Plug
from prebleexp.sim.signatures import COST as COSTS
from tests.support.costs.line_cost import LineCost
from tests.support.recordings.routers import Driven, Path_, workload_of
from tests.support.reference.marginal import Line, Model, Weights
from tests.support.reference.prefix_sets import Model as Caches
from tests.support.sampled import examples

FAST, SLOW = Line(0.005, 0.0001, 1e-7, 0.001), Line(0.009, 0.0003, 4e-7, 0.002)
KV, LIMIT = 4_000, 300
CLOSE = 1e-9
"""prices, relative: what is kept as a sum was added in another order"""


def driven(policy: MarginalDelay, prompts: list[Path_], lines: list[Line], mixed: bool = True) -> Driven:
    """On GPUs of these costs, which have room, and engines that mix prompts and outputs, or do not."""
    made = Driven(policy, workload_of(prompts), len(lines))
    plugs = [Plug(cost, cost.kernels(), cost.start(), COST, COSTS) for cost in map(LineCost, lines)]
    for g, plug in enumerate(plugs):
        made.view.value.costs[g] = plug.repeated(1)[0]
    made.mine.gpus.mixed = mixed
    made.view.value.gpus.kv_tokens = KV
    made.plugs = plugs  # type: ignore[attr-defined]  # the records point into them
    return made


def prompts_of(rng: np.random.Generator, requests: int) -> list[Path_]:
    """Some of 4 long prefixes, and own tokens behind; few are alike to the last."""
    return [
        [(int(rng.integers(4)), 400), (10 + int(rng.integers(6)), 80), (100 + number, int(rng.integers(1, 200)))]
        if rng.random() < 0.9
        else [(int(rng.integers(4)), 400)]
        for number in range(requests)
    ]


class Compared:
    """Decisions of a random stream, each beside the model's prices of all GPUs."""

    def __init__(
        self, seed: int, requests: int, gpus: int = 5, weights: Weights | None = None, mixed: bool = True
    ) -> None:
        rng, lines = np.random.default_rng(seed), [FAST if g % 2 else SLOW for g in range(gpus)]
        prompts = prompts_of(rng, requests)
        self.router = router = driven(MarginalDelay(explain=True), prompts, lines, mixed)
        self.caches = caches = Caches(workload_of(prompts), gpus)
        self.model = model = Model(lines, router.gpus, weights or Weights(), LIMIT, mixed)
        self.chosen: list[int] = []
        self.prices: list[list[list[float]]] = []
        router.requests.expected_output = rng.integers(1, 300, requests)
        router.requests.max_new_tokens = LIMIT
        router.requests.ttft_s = router.requests.latency_s = math.nan
        report(rng, router)
        now, waiting, running = 0.0, list[int](), list[int]()
        while len(self.chosen) < requests:
            now += float(rng.exponential(0.02))
            kind = rng.choice(["arrive", "first", "finish", "evict", "report"], p=[0.4, 0.25, 0.2, 0.1, 0.05])
            if kind == "arrive":
                request = len(self.chosen)
                row = router.requests[request]
                prompt, output = int(row.prompt_tokens), float(row.expected_output)
                hits = [caches.matched(request, g) for g in range(gpus)]
                ends = accumulate(caches.tokens[name] for name in caches.ids[request])
                path = list(zip(caches.ids[request], ends, strict=True))
                self.prices.append(model.arrive(prompt, output, hits, path, now))
                self.chosen.append(gpu := router.decide(request, now))
                router.sends(request, gpu)
                model.sent(request, gpu, prompt, output, hits, now)
                caches.store(request, gpu, prompt)
                waiting.append(request)
            elif kind == "first" and waiting:
                request = waiting.pop(int(rng.integers(len(waiting))))
                running.append(request)
                router.requests[request].ttft_s = now
                router.first_token(request, now)
                model.first(request, int(router.requests[request].gpu))
            elif kind == "finish" and (both := waiting + running):
                request = both[int(rng.integers(len(both)))]
                (waiting if request in waiting else running).remove(request)
                row = router.requests[request]
                row.latency_s = now
                router.finished(request, now)
                model.finished(request, int(row.gpu), float(row.latency_s - row.ttft_s), now)
            elif kind == "evict" and self.chosen:
                gpu = int(rng.integers(gpus))
                router.changed(gpu, now)
                caches.forget_all(gpu)
            elif kind == "report":
                report(rng, router)

    def disagreements(self) -> int:
        """Decisions that the model would not take: another GPU is less by more than rounding."""
        totals = [[sum(terms) for terms in each] for each in self.prices]
        return sum(each[gpu] > min(each) * (1 + CLOSE) for each, gpu in zip(totals, self.chosen, strict=True))


def report(rng: np.random.Generator, router: Driven) -> None:
    for seen in router.gpus:
        seen.kv_free, seen.evictable, seen.generated = rng.integers(KV), rng.integers(KV), rng.integers(200)
        seen.queued, seen.running = rng.integers(4), rng.integers(12)


@pytest.mark.thorough
@settings(max_examples=examples(200), deadline=None)
@given(seed=st.integers(0, 2**32), mixed=st.booleans())
def test_decisions_are_those_of_the_plain_model(seed: int, mixed: bool) -> None:
    assert Compared(seed, 60, mixed=mixed).disagreements() == 0


@pytest.mark.thorough
@pytest.mark.parametrize("weight", [one.name for one in fields(Weights)])
def test_a_model_with_another_weight_decides_otherwise(weight: str) -> None:
    wrong = Weights(**{weight: 4 * getattr(Weights(), weight)})
    counts = [Compared(seed, 60, weights=wrong).disagreements() for seed in range(6)]
    print(f"{weight} four times: {sum(counts)} of {60 * len(counts)} decisions differ")
    assert sum(counts) > 0


@pytest.mark.thorough
@pytest.mark.parametrize("mixed", [True, False])
def test_the_terms_of_a_thousand_decisions_add_up_to_the_price(mixed: bool) -> None:
    compared = Compared(7, 1000, mixed=mixed)
    kept, off = compared.router.mine.decisions, 0.0
    for request, gpu in enumerate(compared.chosen):
        row, prices = kept[request], compared.prices[request]
        others = [g for g in range(len(prices)) if g != gpu]
        assert row.gpu == gpu
        np.testing.assert_allclose(row.chosen, prices[gpu], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(row.next, prices[row.next_gpu], rtol=1e-9, atol=1e-9)
        assert sum(row.next) <= min(sum(prices[g]) for g in others) * (1 + CLOSE)
        assert sum(row.chosen) <= sum(row.next) * (1 + CLOSE)
        off = max(off, abs(sum(row.chosen) / sum(prices[gpu]) - 1))
    print(f"{len(compared.chosen):,} decisions, {len(TERMS)} terms: the sum is off by {off:.1e} at most")
    assert off < CLOSE


@pytest.mark.parametrize("mixed", [True, False])
def test_nothing_is_remembered_of_those_who_have_gone(mixed: bool) -> None:
    compared = Compared(3, 200, mixed=mixed)
    router = compared.router
    for request, gpu in enumerate(compared.chosen):
        if request in compared.model.there[gpu]:
            router.finished(request, 99.0)
    left: Any = router.mine.gpus
    for name in left.dtype.names:
        assert name in ("until_s", "computed", "settled", "mixed", "most", "unknown") or not left[name].any(), name
    assert not router.mine.users.any()


# ---------------------------------------------------------------- by hand
def two(prompts: list[Path_], **fields: Any) -> Driven:
    router = driven(MarginalDelay(**fields), prompts, [FAST, FAST])
    router.requests.expected_output = 100
    return router


def sends(router: Driven, request: int, now: float = 0.0) -> int:
    gpu = router.decide(request, now)
    router.sends(request, gpu)
    return gpu


def test_it_follows_a_prefix_until_others_would_wait_too_long_for_it() -> None:
    router = two([[(0, 1000), (10 + number, 60)] for number in range(40)])
    sent = [sends(router, request) for request in range(40)]
    assert sent[:3] == [sent[0]] * 3, "12 ms of waiting are less than 100 ms of computing"
    assert len(set(sent)) == 2, "in the end the batch is worth a copy"


def test_requests_that_another_gateway_sent_are_learned_from_reports() -> None:
    router = two([[(number, 50)] for number in range(3)])
    router.gpus[0].running = 20
    assert sends(router, 0) == 1
    router.gpus[0].running, router.gpus[1].running = 0, 20
    assert sends(router, 1) == 0, "19 of GPU 1's are another's"
    assert router.mine.gpus.unknown.tolist() == [0, 19]


def test_what_a_report_is_too_old_to_know_is_nobody_elses() -> None:
    router = two([[(number, 50)] for number in range(4)])
    router.view.value.reports[0] = 1
    gpu = sends(router, 0)
    router.gpus[gpu].running = 1  # as of a report before it ended
    router.finished(0, 0.0)
    router.view.value.reports[0] = 2
    sends(router, 1)
    assert not router.mine.gpus.unknown.any()
    router.gpus[gpu].running = 9
    sends(router, 2)
    assert not router.mine.gpus.unknown.any(), "nothing has been reported since"
    router.view.value.reports[0] = 3
    sends(router, 3)
    assert router.mine.gpus.unknown[gpu] >= 7


def test_who_pays_for_others_keeps_a_long_prompt_from_those_who_wait() -> None:
    prompts: list[Path_] = [*([(number, 500)] for number in range(4)), [(9, 4000)]]
    for others, expected in ((3.0, 1), (0.0, 0)):
        router = driven(MarginalDelay(others_weight=others, others_decode_weight=0.0), prompts, [FAST, SLOW])
        router.requests.expected_output = 100
        router.offers([0])
        for request in range(4):
            sends(router, request)
        router.offers([0, 1])
        assert sends(router, 4, now=30.0) == expected, "hardly anybody comes of late"


def test_who_lacks_memory_goes_where_it_is_where_an_engine_keeps_some_for_outputs() -> None:
    def third(mixed: bool, kept: float) -> list[int]:
        """Where another goes if GPU 0 decodes one of 100 tokens, is faster, and has 500 free tokens."""
        router = driven(MarginalDelay(), [[(number, 100)] for number in range(3)], [FAST, SLOW], mixed)
        router.requests.expected_output, router.requests.max_new_tokens = 20, 1_000
        router.gpus.kv_free = KV
        gpus = [sends(router, 0)]
        router.requests[0].ttft_s = 0.1
        router.first_token(0, 0.1)
        router.requests[0].latency_s = 5.0
        router.finished(0, 5.0)
        gpus.append(sends(router, 1, 5.0))
        router.gpus[0].kv_free = kept
        router.first_token(1, 5.1)
        router.gpus[0].kv_free = 500
        return [*gpus, router.decide(2, 5.2)]

    assert third(mixed=True, kept=500) == [0, 0, 0]
    assert third(mixed=False, kept=KV) == [0, 0, 1], "for all that it knows, 1,000 are kept for each"
    assert third(mixed=False, kept=100) == [0, 0, 0], "somebody was admitted where 100 were left"


def test_what_a_gpu_has_of_a_prompt_needs_room_unless_others_use_it() -> None:
    def waits(other: int) -> float:
        """The price of waiting of a session's next turn where 1,000 tokens are free, and those who decode stay 5 s."""
        prompts: list[Path_] = [[(0, 1500)], [(other, 1500)], [(0, 1500), (2, 20)]]
        router = driven(MarginalDelay(explain=True), prompts, [FAST], mixed=False)
        router.requests.expected_output = router.requests.max_new_tokens = 100
        router.gpus.kv_free = KV
        for request in range(2):
            sends(router, request)
            router.requests[request].ttft_s = 0.0
            router.first_token(request, 0.0)
        router.requests[0].latency_s = 5.0
        router.finished(0, 5.0)
        router.gpus.kv_free = 1000
        sends(router, 2, 5.0)
        return float(router.mine.decisions[2].chosen[TERMS.index("own_wait")])

    assert waits(other=1) > 10 * waits(other=0)


def test_a_copy_costs_more_than_its_time() -> None:
    prompts: list[Path_] = [[(0, 200)], [(1, 400)], [(0, 200), (2, 10)]]
    for weight in (0.0, 50.0):
        router = two(prompts, copy_weight=weight)
        assert [sends(router, 0), sends(router, 1)] == [0, 1]
        router.first_token(1, 0.0)
        router.finished(1, 0.0)
        assert sends(router, 2) == (0 if weight else 1)


def test_a_prefix_gets_a_second_gpu_once_its_requests_have_paid_for_the_copy() -> None:
    prompts: list[Path_] = [[(0, 1500), (10 + number, 5)] for number in range(60)]
    followed, paid = dict[float, int](), 0.0
    for weight in (0.0, 0.4, 1.0):
        router = two(prompts, rent_weight=weight, explain=True)
        for request in range(60):
            if sends(router, request, now=0.05 * request) == 1:
                paid = router.mine.decisions[request].chosen[-1]
                break
            router.first_token(request, 0.05 * request)
        followed[weight] = request
        assert (paid < 0) == (weight > 0), "what was paid is taken from the price of the copy"
        assert not router.mine.rents["paid"].any(), "and spent"
    print(f"requests that follow the prefix before it is copied: {followed}")
    assert 59 == followed[0.0] > followed[0.4] > followed[1.0] > 1, "without rent the last is not sent there either"


@pytest.mark.parametrize("name", [one.name for one in fields(Weights)])
@pytest.mark.parametrize("value", [-1, float("nan"), "2", True])
def test_weights_are_numbers_that_are_not_negative(name: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=rf"policy\.{name}=.* is not valid; it must be a number >= 0"):
        MarginalDelay(**{name: value})


def test_explain_is_true_or_false() -> None:
    with pytest.raises(InvalidInput, match=r"policy\.explain=3 is not valid; it must be true or false"):
        MarginalDelay(explain=3)  # type: ignore[arg-type]
