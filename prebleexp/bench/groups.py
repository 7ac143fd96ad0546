"""`prebleexp bench groups`: requests simulated per second of CPU, with groups of layers against one table of blocks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from prebleexp.bench.case import speed
from prebleexp.bench.cpu import by_turns_s
from prebleexp.bench.engines import stream
from prebleexp.bench.table import LESS, MORE, Row, Table
from prebleexp.experiment import runs
from prebleexp.launch import configure

CASE = ("gpus=8", "rps=128", "horizon=drain", "hardware=composed", "engine=vllm")
MODELS = ("gpt_oss_120b", "gemma_3_27b")
WAYS = {"one table": "true", "groups": "null"}


def groups(policies: Sequence[str] | None = None) -> list[Row]:
    """The usual stream, and long prompts that share nothing, on models whose layers have windows; both ways take
    turns."""
    rows = []
    streams = {"usual": None, "4,000 tokens": stream(np.arange(2000) / 16, 4000)}
    for policy, model, (name, given) in product(policies or ("lor",), MODELS, streams.items()):
        case = [*CASE, f"policy={policy}", f"hardware/model={model}"]
        disabled = [f"engine.disable_hybrid_kv_cache_manager={value}" for value in WAYS.values()]
        cells = [configure.cells([*case, line])[0] for line in disabled]
        workload = given or runs.draw(cells[0])
        seconds = by_turns_s(cells, workload)
        for way, took in zip(WAYS, seconds, strict=True):
            size = {"policy": policy, "model": model, "stream": name, "kv": way, "requests": len(workload)}
            rows.append(size | speed(len(workload), took) | {"ratio": seconds[0] / took})
    return rows


TABLE = Table(groups, {"cpu_seconds": LESS, "requests_per_cpu_second": MORE, "ratio": MORE})
