"""`prebleexp bench speculation`: requests simulated per second of CPU with drafts, against none."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from prebleexp.bench.case import LOAD, speed
from prebleexp.bench.cpu import by_turns_s
from prebleexp.bench.engines import stream
from prebleexp.bench.table import LESS, MORE, Row, Table
from prebleexp.experiment import runs
from prebleexp.launch import configure

CASE = (*LOAD, "hardware=composed", "hardware/model=llama_3_1_8b", "engine=vllm")
"""a model of one table of blocks, so that drafts alone make the difference"""
DRAFTED = "engine.speculative_config={{method: {}, num_speculative_tokens: 3, acceptance_rate: 0.7}}"
SYNCHRONOUS = "engine.async_scheduling=false"
"""as ngram needs it, which looks at tokens when a step is over"""
WAYS = {
    "asynchronous": {"none": (), "eagle": (DRAFTED.format("eagle"),)},
    "synchronous": {"none": (SYNCHRONOUS,), "ngram": (SYNCHRONOUS, DRAFTED.format("ngram"))},
}
"""by scheduling, what is drafted"""


def speculation(policies: Sequence[str] | None = None) -> list[Row]:
    """The usual stream, and long prompts that share nothing; with drafts and without take turns. `ratio` is what a
    request costs, over what it costs without drafts."""
    rows = []
    streams = {"usual": None, "4,000 tokens": stream(np.arange(2000) / 16, 4000)}
    for policy, (scheduling, ways), (name, given) in product(policies or ("lor",), WAYS.items(), streams.items()):
        cells = [configure.cells([*CASE, f"policy={policy}", *overrides])[0] for overrides in ways.values()]
        workload = given or runs.draw(cells[0])
        seconds = by_turns_s(cells, workload)
        for drafts, took in zip(ways, seconds, strict=True):
            which = {"policy": policy, "stream": name, "scheduling": scheduling, "drafts": drafts}
            cost = {"us_per_request": took / len(workload) * 1e6, "ratio": took / seconds[0]}
            rows.append(which | {"requests": len(workload)} | speed(len(workload), took) | cost)
    return rows


TABLE = Table(
    speculation, {"cpu_seconds": LESS, "requests_per_cpu_second": MORE, "us_per_request": LESS, "ratio": LESS}
)
