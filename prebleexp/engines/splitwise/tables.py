"""What machines and models are made of: step times, weights and KV, as splitwise-sim has them."""

from __future__ import annotations

import csv
import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from prebleexp.sim.types import Floats

KINDS = ("a100", "h100", "h100_capped")
WEIGHTS = {"llama2-70b": 135_000_000_000, "bloom-176b": 329_000_000_000}
"""bytes of a model's weights"""
KV = {"llama2-70b": 4 * 8192 * 80, "bloom-176b": 4 * 14336 * 70}
"""bytes of KV a token: keys and values of two bytes, in all layers, for all heads (no grouped queries)"""
MEMORY = 8 * 80 * 2**30
"""bytes of a machine's eight GPUs"""
FILE = Path(__file__).parent / "measured" / "step_times.csv"
"""its origin and licence are in the README beside it"""


class StepTimes(NamedTuple):
    """Seconds of an iteration at so many tokens, by machine kind, (kinds, points) each."""

    tokens: Floats
    prompt_s: Floats
    token_s: Floats


@cache
def step_times(model: str) -> StepTimes:
    """Of a model, a row for each of `KINDS`."""
    with FILE.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["model"] == model]

    def column(name: str) -> Floats:
        return np.array([[float(row[name]) for row in rows if row["machine"] == kind] for kind in KINDS])

    return StepTimes(*map(column, StepTimes._fields))


@cache
def fingerprint() -> str:
    """Of the table, for the keys of runs."""
    return hashlib.sha256(FILE.read_bytes()).hexdigest()
