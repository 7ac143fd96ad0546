"""The least loaded of some GPUs, whether those are all or not, against a plain search."""

from __future__ import annotations

import numpy as np
import pytest

from prebleexp.policies.blis.least_loaded import BlisLeastLoaded
from prebleexp.policies.choices import any_least, highest, least_outstanding
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.policies.research.llumnix_freeness import LlumnixFreeness
from prebleexp.policies.vllm.dplb import VLLMDataParallel
from prebleexp.sim import addresses
from prebleexp.sim import records as of
from prebleexp.sim.draws import generator
from prebleexp.sim.handles import Block
from prebleexp.sim.types import Setup
from prebleexp.sim.world import made_cache, made_view, records
from tests.support.recordings.routers import workload_of

pytestmark = pytest.mark.uncompiled

GPUS = 70
SETUP = Setup(GPUS, 0, 1, 1000, 1000, workload_of([[(0, 10)]]))


def view(seed: int, all_of_them: bool) -> Block:
    """Loads of 0 to 4, and every second or third GPU for a candidate, if not all are."""
    rng = np.random.default_rng(seed)
    cache = made_cache(SETUP, 8)
    made = made_view(cache.requests, cache.prompts, records(GPUS, of.REPORT), records(GPUS, addresses.COST))
    made.sent.outstanding = rng.integers(0, 5, GPUS)
    made.gpus.kv_tokens, made.gpus.kv_free = 1000, rng.integers(0, 1000, GPUS)
    made.gpus.queued, made.gpus.running = rng.integers(0, 3, (2, GPUS))
    some = np.arange(GPUS) if all_of_them else np.flatnonzero(rng.random(GPUS) < 0.4)
    return Block(made._replace(candidates=some))


@pytest.mark.parametrize("all_of_them", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_the_first_of_the_least(seed: int, all_of_them: bool) -> None:
    block = view(seed, all_of_them)
    seen, some = block.value, block.value.candidates
    outstanding = seen.sent.outstanding
    first = some[np.argmin(outstanding[some])]
    assert least_outstanding(block.handle) == first
    assert seen.work[of.GPUS] == len(some)
    routed = LeastOutstanding().route(None, seen, 0, 0.0)
    assert routed == first
    load = outstanding + seen.gpus.queued + seen.gpus.running
    blis = BlisLeastLoaded()
    assert blis.route(blis.start(SETUP), seen, 0, 0.0) == some[np.argmin(load[some])]
    with np.errstate(divide="ignore"):
        free = np.where(outstanding > 0, seen.gpus.kv_free / outstanding, np.inf)
    llumnix = LlumnixFreeness()
    assert llumnix.route(llumnix.start(SETUP), seen, 0, 0.0) == some[np.argmax(free[some])]


@pytest.mark.parametrize("all_of_them", [True, False])
def test_any_of_the_least(all_of_them: bool) -> None:
    block = view(7, all_of_them)
    some, outstanding = block.value.candidates, block.value.sent.outstanding.copy()
    least = some[outstanding[some] == outstanding[some].min()]
    draws = generator(3)
    drawn = {any_least(draws, some, outstanding) for _ in range(60 * len(least))}
    assert drawn == set(least.tolist())


@pytest.mark.parametrize("start", [0, 3])
def test_a_balancer_begins_at_its_start(start: int) -> None:
    """And takes the first of the least score from there on, round to the one before."""
    block = view(1, False)
    some, policy = block.value.candidates, VLLMDataParallel("old")
    mine = policy.start(SETUP)
    mine.start[0] = start
    scores = 4 * block.value.gpus.queued + block.value.gpus.running
    turned = np.roll(some, -start)
    assert policy.route(mine, block.handle, 0, 0.0) == turned[np.argmin(scores[turned])]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_highest_score_is_found_among_negative_ones_too(sign: float) -> None:
    rng = np.random.default_rng(5)
    for scores in (sign * rng.random(GPUS), rng.normal(size=GPUS), np.zeros(GPUS)):
        some = np.flatnonzero(rng.random(GPUS) < 0.4)
        best = np.array([highest(scores.view(np.int64), some)]).view(np.float64)
        assert best == scores[some].max()
