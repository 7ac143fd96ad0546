"""`output=vllm_bench`: any run in the JSON that `vllm bench serve --save-detailed` would have written of it."""

from __future__ import annotations

import json
import math
import sys
from datetime import datetime

from prebleexp.commands import benchmarked
from prebleexp.launch.configure import Job
from prebleexp.vllm_bench import flags
from prebleexp.vllm_bench.result import result
from prebleexp.vllm_bench.written import fields_of
from prebleexp.workloads.vllm_bench import VllmBench


def show(job: Job) -> int:
    """Print it; what the tool cannot say goes to standard error. The run is computed anew, as its steps are needed."""
    printed(benchmarked.of_cells(job.cells))
    return 0


def printed(of: benchmarked.Benchmarked, model: str | None = None) -> None:
    """What a client saw of any load; `model` is its own name of what is served."""
    date = datetime.now()
    pasted, source, said = flags.read(["--save-detailed"]), of.cell.workload, list(of.says)
    if not isinstance(source, VllmBench):
        source, how = _as_benchmark(of)
        said.append(how)
    found = result(of.seen, source, pasted.wanted, date)
    print(json.dumps(fields_of(pasted, source, found, model or of.model, date)))
    for sentence in said:
        print(f"prebleexp: {sentence}", file=sys.stderr)


def _as_benchmark(of: benchmarked.Benchmarked) -> tuple[VllmBench, str]:
    """Under which settings the tool would have sent as many, and what these are worth."""
    n, users = len(of.seen.ok), of.cell.workload.users
    if users is not None:
        named = VllmBench(num_prompts=n, max_concurrency=users)
        return (
            named,
            f"max_concurrency is the number of users, {users:,}, some of whom may think",
        )
    span_s = float(of.seen.start_s.max() - of.seen.start_s.min()) if n else 0.0
    rate = (n - 1) / span_s if span_s > 0 else math.inf
    named = VllmBench(num_prompts=n, request_rate=rate)
    return named, "request_rate is that at which requests came, and burstiness, 1, says nothing of their gaps"
