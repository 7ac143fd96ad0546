"""`python -m prebleexp bench`: how fast the simulator is, and what a decision costs; on one core, after warm-up."""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from prebleexp.commands import clocked
from prebleexp.commands.arguments import Command, Commands, Given, Setting, choice
from prebleexp.experiment import limits, runs
from prebleexp.experiment.cell import Cell
from prebleexp.launch import configure, places, tables
from prebleexp.policies.replay import Replay
from prebleexp.sim import addresses
from prebleexp.sim.compiled import compiled
from prebleexp.sim.cost import decode_s, request_ms, step_s
from prebleexp.sim.plug import Plug
from prebleexp.sim.signatures import COST
from prebleexp.sim.types import Longs, Setup, Workload

SERVED = ("hardware=a6000_mistral_7b", "engine=sglang_2024")
"""in every measurement, whatever the defaults are: so speeds compare over time"""
CASE = ("gpus=8", "rps=128", "horizon=drain", *SERVED)
POLICIES = ("random", "round_robin", "lor", "lor_tokens", "least_work", "e2_released", "e2")
REPEATS = 9
PASSES = 4

ENGINES = ("preble", "vllm", "sglang")
BURSTS = (2000, 8000)
"""requests at once, of 800 tokens each, on 8 GPUs with room for 20,000: 10 and 40 times what fits"""

POOLED = ("gpus=8", "rps=128", "horizon=drain", "hardware=composed", "hardware/model=llama_3_1_8b")
PROTOCOLS = {
    "vllm": ("pull", "push_at_end"),
    "sglang": tuple(f"reserve_first cluster.link.send={when}" for when in ("end", "chunks", "layers")),
}
"""by engine, how KV gets from 4 GPUs that compute prompts to 4 that make outputs; beside each, 8 GPUs that do all"""

HARDWARE = (
    "hardware=a6000_mistral_7b_monotone",
    "hardware=composed hardware/model=llama_3_1_8b",
    "hardware=composed hardware/model=gpt_oss_120b",
)
STEPS = 1_000_000

SCALED = ("e2_released", "e2")
GPUS = (8, 16, 32, 64, 128, 256)
"""each with 8 requests a second for 15 s"""
SECONDS = (15, 60, 240, 960)
"""8 GPUs, 64 requests a second"""
ENOUGH = 500_000
"""requests that a decision is measured with, if need be in many runs"""

OFTEN = 8
"""requests of a session, and repetitions, where decisions are clocked"""
LATER = ("replay", "e2_released")
"""what tells rather than decides, and what is kept slow as it was"""

MILLION = (*SERVED, "gpus=256", "rps=2048", "duration_s=488.28125")
REMEMBERING = (
    *("lor", "lor_tokens", "least_work", "e2", "e2_released", "sglang_cache_aware", "vllm_cache_aware"),
    *("production_stack_prefixaware", "aibrix_prefix_cache", "aibrix_prefix_cache_preble", "dynamo_kv", "llmd"),
    *("blis_weighted", "lmetric", "least_prefill_work", "mooncake", "lbgr", "dualmap"),
)
"""one that remembers nothing, and those that remember prompts"""


Measure = Callable[[Sequence[str] | None], list[dict[str, Any]]]
"""rows, of these policies or of its own"""


def _printed(measure: Measure, given: Given) -> int:
    print("prebleexp: measuring, on one core; some minutes", file=sys.stderr, flush=True)
    rows = measure(given.values.get("policy"))
    if given["output"] == "json":
        print(json.dumps(rows, indent=1))
        return 0
    tables.show(list(rows[0]), [[_text(value) for value in row.values()] for row in rows])
    return 0


def throughput(policies: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Simulated requests per second of CPU."""
    return [measure(configure.cells([*CASE, f"policy={policy}"])[0]) for policy in policies or POLICIES]


def measure(cell: Cell) -> dict[str, Any]:
    """The least CPU seconds of some runs of `cell`, its request stream drawn beforehand."""
    workload = runs.draw(cell)
    runs.run(cell, workload)
    seconds = min(cpu_s(cell, workload) for _ in range(REPEATS))
    return _size(cell, workload) | {
        "cpu_seconds": seconds,
        "requests_per_cpu_second": round(len(workload) / seconds),
    }


def engines(policies: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The usual stream, long prompts, and ever more requests than fit into memory. Engines take turns, and all is done
    `PASSES` times, so that a machine that is slow for a while is so for all of them, or for one pass."""
    streams: dict[str, tuple[Workload | None, list[str]]] = {"usual": (None, [])}
    streams["4,000 tokens"] = stream(np.arange(2000) / 8, 4000), []
    streams |= {f"{n:,} at once": (stream(np.zeros(n), 500), ["hardware.kv_tokens=20000"]) for n in BURSTS}
    rows: list[dict[str, Any]] = []
    for _, policy, (name, (given, scarce)) in product(range(PASSES), policies or ("lor",), streams.items()):
        overrides = [*CASE, f"policy={policy}", *scarce]
        cells = [configure.cells([*overrides, f"engine={engine}"])[0] for engine in ENGINES]
        workload = given or runs.draw(cells[0])
        for cell in cells:
            runs.simulate_cell(cell, workload)
        seconds = np.min([[cpu_s(cell, workload) for cell in cells] for _ in range(REPEATS)], axis=0)
        for engine, took in zip(ENGINES, seconds, strict=True):
            size = {"policy": policy, "stream": name, "engine": engine, "requests": len(workload)}
            rows.append(size | {"cpu_seconds": float(took)})
    best: dict[tuple[Any, ...], float] = {}
    for row in rows:
        *which, took = row.values()
        best[tuple(which)] = min(took, best.get(tuple(which), took))
    return [
        dict(zip(rows[0], (*which, took), strict=True)) | {"requests_per_cpu_second": round(which[-1] / took)}
        for which, took in best.items()
    ]


def pools(policies: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The usual stream on GPUs that do all of a request, and on GPUs for prompts and for outputs, which take turns."""
    rows = []
    for policy, (engine, protocols) in product(policies or ("lor",), PROTOCOLS.items()):
        ways = ["one_kind", *(f"disaggregated cluster.protocol={protocol}" for protocol in protocols)]
        case = [*POOLED, f"policy={policy}", f"engine={engine}"]
        cells = [configure.cells([*case, *f"cluster={way}".split()])[0] for way in ways]
        workload = runs.draw(cells[0])
        for cell in cells:
            runs.simulate_cell(cell, workload)
        seconds = np.min([[cpu_s(cell, workload) for cell in cells] for _ in range(PASSES * REPEATS)], axis=0)
        for way, took in zip(ways, seconds, strict=True):
            size = {"policy": policy, "engine": engine, "cluster": way, "requests": len(workload)}
            speed = {"requests_per_cpu_second": round(len(workload) / took), "ratio": float(seconds[0] / took)}
            rows.append(size | {"cpu_seconds": float(took)} | speed)
    return rows


def hardware(names: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Nanoseconds in which it is said what a step takes, asked as engines ask."""
    rows = []
    for name in names or HARDWARE:
        model = configure.cells(["engine=vllm", *name.split()])[0].hardware
        plug = Plug(model, model.kernels(), model.start(), addresses.COST, COST)
        for what, ask in ASKED.items():
            ask(plug.record, 1)
            least = min(_elapsed_s(partial(ask, plug.record, STEPS)) for _ in range(REPEATS))
            rows.append({"hardware": name, "what": what, "ns": round(least / STEPS * 1e9, 1)})
    return rows


@compiled
def decodes_s(cost: Any, steps: int) -> float:
    """Seconds of so many steps of various batches."""
    seconds = 0.0
    for step in range(steps):
        running = 1 + step % 256
        seconds += decode_s(cost, running, 1000 * running, 1000 * running, 1)
    return seconds


@compiled
def mixed_s(cost: Any, steps: int) -> float:
    """The same with a chunk of a prompt in each, of which `request_ms` is known."""
    seconds = 0.0
    for step in range(steps):
        running, new = 1 + step % 256, 1 + step % 2048
        context, length = 1000 * running, 2048
        seconds += step_s(cost, 1, new, length, running, context, context + length, 1.0)
    return seconds


@compiled
def requests_ms(cost: Any, steps: int) -> float:
    """Of so many chunks."""
    milliseconds = 0.0
    for step in range(steps):
        milliseconds += request_ms(cost, 1 + step % 2048, 2048)
    return milliseconds


ASKED = {"a step of decodes": decodes_s, "a step with a prompt": mixed_s, "a prompt's part": requests_ms}


def _elapsed_s(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def stream(arrival_s: npt.NDArray[np.float64], prompt_tokens: int) -> Workload:
    """Requests that share nothing, with outputs of 300 tokens."""
    n = len(arrival_s)
    size, output = np.full(n, prompt_tokens), np.full(n, 300)
    return Workload(arrival_s, size, output, output, np.full(n, -1), np.arange(n + 1), np.arange(n), size)


def scaling(policies: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Microseconds of CPU a decision, by GPUs and by requests."""
    sizes = [(gpus, 8 * gpus, 15) for gpus in GPUS] + [(8, 64, seconds) for seconds in SECONDS[1:]]
    rows = []
    for policy in policies or SCALED:
        for gpus, rps, seconds in sizes:
            size = (f"gpus={gpus}", f"rps={rps}", f"duration_s={seconds}")
            (cell,) = configure.cells([*SERVED, f"policy={policy}", *size])
            workload = runs.draw(cell)
            rows.append(_size(cell, workload) | {"us_per_decision": decision_s(cell, workload) * 1e6})
    return rows


@dataclass(frozen=True)
class Told(Replay):
    """Assignments that are at hand."""

    assigned: Any = None
    """(requests,) GPUs"""

    def __post_init__(self) -> None:
        pass

    def start(self, setup: Setup) -> Longs:
        return self.assigned  # type: ignore[no-any-return]


def decision_s(cell: Cell, workload: Workload) -> float:
    """CPU seconds a decision takes, with all that the policy hears and without what it does at the start: the run
    against one in which it is told the same assignments, by turns and many times, since a decision may take a hundredth
    of what else is simulated of a request."""
    told = replace(cell, policy=Told(assigned=runs.simulate_cell(cell, workload).gpu.astype(np.int64)))
    setup = Setup(cell.gpus, cell.seed, len(workload), cell.hardware.kv_tokens, cell.hardware.context_length, workload)
    runs.simulate_cell(told, workload)
    repeats = max(REPEATS, ENOUGH // len(workload))
    starts = [_used(lambda: cell.policy.start(setup)) for _ in range(REPEATS)]
    differences = [cpu_s(cell, workload) - cpu_s(told, workload) for _ in range(repeats)]
    return max(1e-9, float(np.median(differences) - np.median(starts)) / len(workload))


def decisions(policies: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Nanoseconds a decision on 8 and on 256 GPUs, of as many requests with 8 a second and GPU, each of a session."""
    rows = []
    for policy in policies or routers():
        row: dict[str, Any] = {"policy": policy}
        for gpus, seconds in ((GPUS[0], SECONDS[0] * GPUS[-1] // GPUS[0]), (GPUS[-1], SECONDS[0])):
            size = (f"gpus={gpus}", f"rps={8 * gpus}", f"duration_s={seconds}")
            (cell,) = configure.cells([*SERVED, f"policy={policy}", *size])
            row[f"ns on {gpus} GPUs"] = round(clocked.decision_ns(cell, _of_sessions(runs.draw(cell)), OFTEN), 1)
        few, many = list(row.values())[1:]
        rows.append(row | {"ratio": round(many / few, 2)})
    return rows


def routers() -> list[str]:
    """All that decide, by name."""
    return [name for name in places.options("policy") if name not in LATER]


def _of_sessions(workload: Workload) -> Workload:
    """The same requests, taken for `OFTEN` of each session."""
    turn, session = np.divmod(np.arange(len(workload)), -(-len(workload) // OFTEN))
    return replace(workload, session=session.astype(np.int32), turn=turn.astype(np.int32))


def memory(policies: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The most memory that a run of a million requests takes, each in a process that does nothing else."""
    spawn, rows = multiprocessing.get_context("spawn"), []
    for policy in policies or REMEMBERING:
        runs.run(configure.cells([*SERVED, "gpus=2", "rps=2", f"policy={policy}"])[0])  # nothing is left to compile
        with ProcessPoolExecutor(1, mp_context=spawn) as pool:
            rows.append(pool.submit(_remembered, policy).result())
    return rows


def _remembered(policy: str) -> dict[str, Any]:
    (cell,) = configure.cells([*MILLION, f"policy={policy}"])
    workload = runs.draw(cell)
    return _size(cell, workload) | {
        "cpu_seconds": _used(lambda: runs.run(cell, workload)),
        "peak_gib": limits.peak_memory_bytes() / limits.GIB,
    }


def cpu_s(cell: Cell, workload: Workload) -> float:
    """CPU seconds of one run."""
    return _used(lambda: runs.simulate_cell(cell, workload))


def _used(what: Callable[[], object]) -> float:
    """CPU seconds."""
    start = time.process_time()
    what()
    return time.process_time() - start


def _size(cell: Cell, workload: Workload) -> dict[str, Any]:
    return {"policy": cell.called("policy"), "gpus": cell.gpus, "rps": cell.rps, "requests": len(workload)}


def _text(value: object) -> str:
    return f"{value:.6f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _command(does: str, measure: Measure, policies: str, name: str = "") -> Command:
    asked = Setting("policy", "these routers, your own too", policies, None, lambda _, text: text.split(","))
    example = f"python -m prebleexp bench {name} policy=lor,e2".replace("  ", " ")
    settings = (asked, choice("output", "what is printed", "table", "json"))
    return Command(does, partial(_printed, measure), example, settings=settings)


COMMANDS: Commands = {
    "": _command("requests simulated per second of CPU, a line for each policy", throughput, ",".join(POLICIES)),
    "scaling": _command(
        "what a decision costs, by the size of the cluster and the length of the run",
        scaling,
        ",".join(SCALED),
        "scaling",
    ),
    "decisions": _command(
        "what a decision takes on 8 and on 256 GPUs, by the processor's clock", decisions, "all", "decisions"
    ),
    "memory": _command("the memory of a million requests on 256 GPUs, each alone", memory, "all of prompts", "memory"),
    "engines": _command("requests per second of CPU by engine, on some streams", engines, "lor", "engines"),
    "pools": _command("requests per second of CPU with prompts on GPUs of their own", pools, "lor", "pools"),
    "hardware": Command(
        "nanoseconds in which hardware says what a step takes",
        partial(_printed, hardware),
        "python -m prebleexp bench hardware",
        settings=(choice("output", "what is printed", "table", "json"),),
    ),
}
