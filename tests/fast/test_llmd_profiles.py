"""The routers of published ladders decide as plain Python does, decision for decision: llm-d with its affinity filter,
llm-d fed by KV events, and a Kubernetes Service."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from prebleexp.errors import InvalidInput
from prebleexp.launch import configure
from prebleexp.policies.kubernetes_service import KubernetesService
from prebleexp.policies.llmd.picker import LlmD
from prebleexp.policies.llmd.precise import LlmDPrecise
from prebleexp.testing import check_policy
from tests.support.interpreted import SCARCE, digest, interpreted
from tests.support.recordings.routers import Driven, workload_of
from tests.support.reference.llmd_blocks import Believed, Rules, blocks_of
from tests.support.reference.llmd_profiles import Filter, Optimized, Precise, Prompt, Service, sticky

pytestmark = pytest.mark.uncompiled
GPUS, DECISIONS = 5, 400


def prompts(rng: np.random.Generator) -> list[Prompt]:
    """Of a few groups with a few questions each; the question's segment stands for its group too."""
    found = []
    for _ in range(DECISIONS):
        group, question = int(rng.integers(4)), int(rng.integers(4))
        found.append([(group, 100 + 64 * group), (10 + 4 * group + question, 20 + 90 * question)])
    return found


@pytest.mark.thorough
@pytest.mark.parametrize(
    "rule", [Filter(0.8, 300, 0.0, 1000.0), Filter(0.5, 0, 150.0, 1000.0), Filter(0.9, 200, 900.0, 300.0)]
)
def test_the_affinity_filter_and_the_token_load_scorer(rule: Filter) -> None:
    rng = np.random.default_rng(3)
    asked = prompts(rng)
    policy = LlmD(
        {"token-load-scorer": 1.0},
        lru_capacity=30,
        affinity_threshold=rule.threshold,
        max_tokens_in_flight_penalty=rule.most_tokens,
        max_ttft_penalty_ms=rule.most_ttft_ms,
        peak_prefill_throughput=rule.tokens_per_s,
    )
    blocks = Rules(64, 2048, True, 30)
    driven = Driven(policy, workload_of(asked), GPUS)
    plain, passed = Optimized(rule, [Believed(blocks, True) for _ in range(GPUS)]), set[int]()
    for request, prompt in enumerate(asked):
        candidates = sorted(rng.choice(GPUS, rng.integers(1, GPUS + 1), replace=False).tolist())
        driven.offers(candidates)
        of = blocks_of(prompt, blocks)
        allowed = plain.best(of, candidates)
        gpu = driven.decide(request, 0.0)
        assert gpu in allowed
        passed.add(len(allowed))
        plain.sent(request, of, gpu)
        driven.sends(request, gpu)
        for waiting in [one for one in plain.own if rng.random() < 0.3]:
            driven.first_token(waiting, 0.0)
            plain.first_token(waiting)
        assert driven.mine.scores.tokens.tolist() == plain.tokens
    assert passed >= {1, 2}


def test_the_filter_is_open_where_those_that_have_it_have_more_to_do() -> None:
    rule = Filter(0.8, 100, 0.0, 1000.0)
    assert sticky(rule, [0.9, 0.8, 0.1], [500, 150, 50], [0, 1, 2]) == [0, 1]
    assert sticky(rule, [0.9, 0.8, 0.1], [500, 151, 50], [0, 1, 2]) == [0, 1, 2]
    assert sticky(rule, [0.7, 0.7, 0.1], [0, 0, 0], [0, 1, 2]) == [0, 1, 2]
    assert sticky(rule, [0.9, 0.9, 0.9], [500, 0, 0], [0, 2]) == [0, 2]


@pytest.mark.slow
@pytest.mark.parametrize("speculative_s", [0.0, 2.0])
def test_the_picker_fed_by_kv_events(speculative_s: float) -> None:
    rng = np.random.default_rng(4)
    asked = prompts(rng)
    policy = LlmDPrecise({"prefix-cache-scorer": 1.0}, block_size=16, speculative_s=speculative_s)
    driven = Driven(policy, workload_of(asked), GPUS)
    plain, now = Precise(GPUS, 16, speculative_s), 0.0
    for request, prompt in enumerate(asked):
        now += float(rng.exponential(0.5))
        scores = plain.scores(prompt, list(range(GPUS)), now)
        gpu = driven.decide(request, now)
        assert driven.mine.scores.total.tolist() == scores
        assert scores[gpu] == max(scores)
        plain.sent(prompt, gpu, now)
        if rng.random() < 0.5:
            whole = sum(tokens for _, tokens in prompt)
            other = int(rng.integers(GPUS))
            driven.stored(request, other, whole, now)
            plain.holds[other].append([(segment, one) for segment, size in prompt for one in range(size)])
        if rng.random() < 0.2:  # a GPU that is back holds nothing
            driven.changed(other := int(rng.integers(GPUS)), now)
            plain.holds[other], plain.sends[other] = [], []


@pytest.mark.parametrize("keep_alive_s", [0.0, 3.0])
def test_a_client_of_a_service_keeps_its_connections(keep_alive_s: float) -> None:
    rng = np.random.default_rng(5)
    driven = Driven(KubernetesService(keep_alive_s), workload_of([[(0, 1)]] * DECISIONS), GPUS)
    plain, now, opened, under_way = Service(keep_alive_s), 0.0, list[int](), list[int]()
    for request in range(DECISIONS):
        now += float(rng.exponential(1.0))
        expected, gpu = plain.takes(now), driven.decide(request, now)
        assert expected in (None, gpu)
        opened += [gpu] if expected is None else []
        driven.sends(request, gpu)
        under_way.append(request)
        for one in [one for one in under_way if rng.random() < 0.25]:
            under_way.remove(one)
            driven.finished(one, now)
            plain.finished(int(driven.requests[one].gpu), now)
    assert set(opened) == set(range(GPUS))
    assert len(opened) == DECISIONS if keep_alive_s == 0 else len(opened) < DECISIONS / 2


def test_connections_are_drawn_alike() -> None:
    driven = Driven(KubernetesService(0.0), workload_of([[(0, 1)]]), 4)
    counts = np.bincount(driven.answers(0, 0.0, 4000))
    assert ((counts - 1000) ** 2 / 1000).sum() < 16.27  # one in a thousand exceeds it


@pytest.mark.slow
@pytest.mark.uncompiled(False)
@pytest.mark.parametrize("policy", [LlmDPrecise(), LlmD(affinity_threshold=0.8), KubernetesService()])
def test_they_pass_the_contract(policy: Any) -> None:
    check_policy(policy)


def test_the_options_are_the_guides() -> None:
    optimized, precise = (configure.cells([f"policy={name}"])[0].policy for name in ("llmd_optimized", "llmd_precise"))
    assert optimized == LlmD({"token-load-scorer": 1.0}, affinity_threshold=0.8, max_tokens_in_flight_penalty=286_720)
    assert precise == LlmDPrecise()
    assert configure.cells(["policy=kubernetes_service"])[0].policy == KubernetesService()


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            lambda: LlmD(affinity_threshold=1.5),
            r"policy\.affinity_threshold=1\.5 is not valid; it must be a number from",
        ),
        (lambda: LlmD(max_tokens_in_flight_penalty=-1), r"policy\.max_tokens_in_flight_penalty=-1 is not valid"),
        (lambda: LlmD(max_ttft_penalty_ms=-1), r"policy\.max_ttft_penalty_ms=-1 is not valid"),
        (lambda: LlmD(peak_prefill_throughput=0), r"policy\.peak_prefill_throughput=0 is not valid"),
        (lambda: LlmDPrecise(speculative_s=-1), r"policy\.speculative_s=-1 is not valid"),
        (lambda: KubernetesService(-1), r"policy\.keep_alive_s=-1 is not valid"),
    ],
)
def test_what_is_not_valid_is_said(made: Any, said: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{said}"):
        made()


@pytest.mark.slow
@pytest.mark.uncompiled(False)
def test_they_do_the_same_interpreted() -> None:
    how = f"engine=preble reports_ms=20 {SCARCE}"
    runs = [f"policy={one} {how}" for one in ("llmd_optimized", "llmd_precise", "kubernetes_service")]
    assert interpreted(*runs) == [digest(*run.split()) for run in runs]
