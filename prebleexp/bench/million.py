"""`prebleexp bench million`: a million requests on 256 GPUs, each time in a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from prebleexp.bench.alone import run_alone
from prebleexp.bench.case import AS_OF_2024, SETUPS
from prebleexp.bench.table import LESS, Row, Table

MILLION = ("gpus=256", "rps=2048", "duration_s=488.28125")
SWAMPED = ("gpus=256", "rps=4096", "duration_s=244.140625")
"""twice what they can serve: a request that waits is not looked up anew at every step"""
CASES = ((AS_OF_2024, MILLION), ("default", MILLION), (AS_OF_2024, SWAMPED))


def million(policies: Sequence[str] | None = None) -> list[Row]:
    """CPU seconds and the most memory."""
    return [
        {"setup": setup} | run_alone(*SETUPS[setup], *load, f"policy={policy}")
        for policy, (setup, load) in product(policies or ("lor",), CASES)
    ]


TABLE = Table(million, {"cpu_seconds": LESS, "peak_gib": LESS})
