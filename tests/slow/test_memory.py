"""Bytes that requests take, each size in a process of its own. Numbers are printed (-s)."""

from __future__ import annotations

import pytest

from prebleexp.bench.alone import run_alone
from prebleexp.bench.case import SERVED
from prebleexp.bench.memory import memory

pytestmark = pytest.mark.slow
FEW, MANY = 100_000, 300_000
SWAMPED = 4096
"""requests a second, twice what 256 GPUs can serve"""


def peak(requests: int, rps: int, *settings: str) -> float:
    """Bytes, at the most."""
    row = run_alone(*settings, "gpus=256", "policy=lor", f"rps={rps}", f"duration_s={requests / rps}")
    assert row["requests"] == requests
    return float(row["peak_gib"]) * 2**30


@pytest.mark.parametrize(
    ("settings", "rps"), [((), 2048), (SERVED, 2048), (SERVED, SWAMPED)], ids=["default", "as of 2024", "swamped"]
)
def test_a_request_takes_few_bytes(settings: tuple[str, ...], rps: int) -> None:
    """By the difference of a long run and a short one: what a process takes once is not a request's."""
    each = (peak(MANY, rps, *settings) - peak(FEW, rps, *settings)) / (MANY - FEW)
    print(f"{each:.0f} bytes a request")
    assert each < 850


@pytest.mark.nightly
@pytest.mark.parametrize("policy", ["lbgr", "llmd"])
def test_a_million_requests_take_less_than_a_gib_where_most_wait_on_few_gpus(policy: str) -> None:
    (row,) = memory([policy])
    print(row)
    assert row["requests"] == 1_000_000
    assert row["peak_gib"] < 1
