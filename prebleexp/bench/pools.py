"""`prebleexp bench pools`: requests simulated per second of CPU, with prompts on GPUs of their own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from prebleexp.bench.case import speed
from prebleexp.bench.cpu import REPEATS, by_turns_s
from prebleexp.bench.table import LESS, MORE, Row, Table
from prebleexp.experiment import runs
from prebleexp.launch import configure

POOLED = ("gpus=8", "rps=128", "horizon=drain", "hardware=composed", "hardware/model=llama_3_1_8b")
PROTOCOLS = {
    "vllm": ("pull", "push_at_end"),
    "sglang": tuple(f"reserve_first cluster.link.send={when}" for when in ("end", "chunks", "layers")),
}
"""by engine, how KV gets from 4 GPUs that compute prompts to 4 that make outputs; beside each, 8 GPUs that do all"""
TIMES = 4 * REPEATS


def pools(policies: Sequence[str] | None = None) -> list[Row]:
    """The usual stream on GPUs that do all of a request, and on GPUs for prompts and for outputs, which take turns."""
    rows = []
    for policy, (engine, protocols) in product(policies or ("lor",), PROTOCOLS.items()):
        ways = ["one_kind", *(f"disaggregated cluster.protocol={protocol}" for protocol in protocols)]
        case = [*POOLED, f"policy={policy}", f"engine={engine}"]
        cells = [configure.cells([*case, *f"cluster={way}".split()])[0] for way in ways]
        workload = runs.draw(cells[0])
        seconds = by_turns_s(cells, workload, TIMES)
        for way, took in zip(ways, seconds, strict=True):
            size = {"policy": policy, "engine": engine, "cluster": way, "requests": len(workload)}
            rows.append(size | speed(len(workload), took) | {"ratio": seconds[0] / took})
    return rows


TABLE = Table(pools, {"cpu_seconds": LESS, "requests_per_cpu_second": MORE, "ratio": MORE})
