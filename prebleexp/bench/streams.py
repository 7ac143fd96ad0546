"""`prebleexp bench streams`: long streams of requests drawn, and traces read, drawn and served."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from prebleexp.bench import made_up
from prebleexp.bench.alone import alone
from prebleexp.bench.cpu import least_s, used_s
from prebleexp.bench.table import LESS, Row, Table
from prebleexp.experiment import runs
from prebleexp.launch import configure
from prebleexp.workloads import files

TIMES = 2
FEW_SHOT = ("rps=10000", "duration_s=100")
REACT = ("workload=react", "rps=1000", "duration_s=1000")
RECORDED = ("gpus=16", "policy=lor", "workload=mooncake", "workload.load=recorded")
LANES = (
    *("workload=agents", "workload.load=population", "workload.growth=accumulate", "replicas=64", "policy=lor"),
    *("hardware=h100_tp2_llama3_70b", "hardware.kv_tokens=400000", "horizon=stop"),
)
FEW, MANY = ("workload.lanes=10", "duration_s=10"), ("workload.lanes=10000", "duration_s=2450")
AGENTS = (
    *("workload=agents", "rps=7.6", "duration_s=3600", "workload.gap_cap_s=60", "replicas=16", "policy=lor"),
    *("hardware=h100_tp2_llama3_70b", "hardware.kv_tokens=4000000", "hardware.context_length=1200000"),
)


def streams(path: Path | None = None) -> list[Row]:
    """CPU seconds and the most memory, each in a process of its own. `path` is a trace: of Mooncake's format, served in
    place of the made-up one; or of agents' sessions, served too. Raises InvalidInput if it cannot be read."""
    of_blocks = path is not None and b"hash_ids" in files.unpacked(str(path))
    rows = [
        {"stream": "few-shot prompts, 10,000 a second", "what": "drawn"} | alone(_drawn, FEW_SHOT),
        {"stream": "react, 1,000 a second", "what": "drawn"} | alone(_drawn, REACT),
    ]
    with TemporaryDirectory() as folder:
        trace, chats = Path(folder, "trace.jsonl"), Path(folder, "chats.jsonl")
        made_up.trace(trace)
        made_up.chats(chats)
        recorded = [*RECORDED, f"workload.path={path if of_blocks else trace}"]
        name = "a trace" if of_blocks else "made up like Mooncake's conversation"
        rows.append({"stream": f"{name}, on 16 GPUs", "what": "served"} | alone(_served, recorded))
        lanes = [*LANES, f"workload.path={chats}"]
        few, many = [*lanes, *FEW], [*lanes, *MANY]
        rows.append({"stream": "10,000 lanes of chats", "what": "drawn and served"} | alone(_whole, few, many))
        if path is not None and not of_blocks:
            agents = [*AGENTS, f"workload.path={path}"]
            rows.append(
                {"stream": "agents, on 16 pairs of GPUs", "what": "read, drawn and served"} | alone(_whole, few, agents)
            )
    return rows


def _drawn(overrides: Sequence[str]) -> Row:
    (cell,) = configure.cells(overrides)
    return {"requests": len(runs.draw(cell)), "cpu_seconds": least_s(lambda: runs.draw(cell), TIMES)}


def _served(overrides: Sequence[str]) -> Row:
    (cell,) = configure.cells(overrides)
    workload = runs.draw(cell)
    runs.simulate_cell(cell, workload)
    return {"requests": len(workload), "cpu_seconds": least_s(lambda: runs.simulate_cell(cell, workload), TIMES)}


def _whole(before: Sequence[str], overrides: Sequence[str]) -> Row:
    """Once, behind a run that loads what both need."""
    (small,), (cell,) = configure.cells(before), configure.cells(overrides)
    runs.simulate_cell(small, runs.draw(small))
    served = []
    seconds = used_s(lambda: served.append(runs.simulate_cell(cell, runs.draw(cell))))
    return {"requests": len(served[0].state), "cpu_seconds": seconds}


TABLE = Table(streams, {"cpu_seconds": LESS, "peak_gib": LESS})
