"""AIBrix's least-kv-cache, by hand."""

from __future__ import annotations

import pytest

from prebleexp.policies.aibrix.least_kv_cache import LeastKvCache
from prebleexp.testing import check_policy
from tests.support.recordings.routers import Driven, workload_of


def test_it_takes_the_last_of_those_with_the_least_in_use() -> None:
    """What only the prefix cache holds is not in use; shares count, not tokens."""
    driven = Driven(LeastKvCache(), workload_of([[(0, 1)]] * 4), 4)
    driven.gpus.kv_tokens = [100, 100, 100, 1000]
    driven.gpus.kv_free, driven.gpus.evictable = [50, 20, 60, 490], 0
    assert driven.decide(0, 0.0) == 2
    driven.gpus[1].evictable = 40
    assert driven.decide(1, 0.0) == 2
    driven.gpus[3].evictable = 110
    assert driven.decide(2, 0.0) == 3
    driven.gpus[0].kv_free = 100
    assert driven.decide(3, 0.0) == 0


def test_it_hears_of_the_gpus_every_50_ms() -> None:
    assert LeastKvCache.reports_ms == 50


@pytest.mark.thorough
def test_it_passes_the_contract() -> None:
    check_policy(LeastKvCache())
