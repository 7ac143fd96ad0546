"""The recordings of Dynamo's replay with prefill and decode workers, and the same runs made by this package.

Of the same folder as those of splitwise-sim, and of this repository.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from prebleexp.engines.dynamo_replay import loop
from prebleexp.engines.dynamo_replay.engine import DynamoReplay
from prebleexp.engines.dynamo_replay.records import Sim
from prebleexp.engines.dynamo_replay.state import EXAMPLE, allocate
from prebleexp.sim.handles import Block
from prebleexp.sim.types import Longs, Workload
from tests.support.places import ROOT
from tests.support.recordings.splitwise import FOLDER

TIMES = (
    *("prefill_admit_ms", "source_held_ms", "destination_reserved_ms", "destination_activated_ms"),
    *("decode_admit_ms", "source_released_ms", "first_token_ms", "terminal_time_ms"),
)
COUNTS = ("reused_input_tokens", "decode_reused_input_tokens", "readmission_count")
DIGITS = 6
"""of milliseconds that a recording has"""


def cases(folder: Path) -> list[Path]:
    """Those with fixed step times and without a host tier."""
    found = []
    for path in sorted(folder.glob("dynamo_pd_*.json")):
        engine = json.loads(path.read_text(encoding="utf-8"))["prefill_engine"]
        if engine["timing_model"]["type"] == "fixed" and "native_host_offload" not in engine:
            found.append(path)
    return found


CASES = cases(FOLDER)
OWN = cases(ROOT / "tests" / "data" / "dynamo_pd")
"""made with the release by `tests.make_dynamo_recordings`"""


def engine_of(recorded: dict[str, Any]) -> DynamoReplay:
    prefill, decode = recorded["prefill_engine"], recorded["decode_engine"]
    per_role = ("num_gpu_blocks", "max_num_seqs", "max_num_batched_tokens")
    alike = ("backend", "block_size", "kv_transfer_bytes_per_token", "kv_transfer_bandwidth", "kv_transfer_timing_mode")
    return DynamoReplay(
        prefill_workers=recorded["workers"]["prefill"],
        prefill_ms=prefill["timing_model"]["prefill_ms"],
        decode_ms=decode["timing_model"]["decode_ms"],
        **{name: prefill[name] for name in (*alike, *per_role)},
        **{f"decode_{name}": decode[name] for name in per_role},
    )


def served(
    workload: Workload,
    engine: DynamoReplay,
    gpus: int,
    workers: tuple[Longs, Longs] | None = None,
    arrival_ms: Any = None,
) -> Sim:
    """The state in which a run ends that nothing stops. `arrival_ms`: those of the workload before seconds were made of
    them."""
    sim = allocate(workload, engine, gpus, math.inf, 1 << 15, workers)
    if arrival_ms is not None:
        sim.requests.arrival_ms = arrival_ms
    block = Block(sim, EXAMPLE.layout)
    while loop.advance(block.handle) != loop.DONE:
        pass
    return sim


def workload_of(recorded: dict[str, Any]) -> Workload:
    """A block is a segment; one that is not full is nobody else's."""
    columns, blocks = recorded["columns"], recorded["blocks"]
    arrival_s = np.array(columns["arrival_time_ms"]) / 1e3
    prompts, outputs = (np.array(columns[name], np.int32) for name in ("input_length", "output_length"))
    size, n = recorded["prefill_engine"]["block_size"], len(prompts)
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in blocks])])
    _, ids = np.unique(np.concatenate(blocks), return_inverse=True)
    tokens = np.full(len(ids), size, np.int32)
    last = offsets[1:] - 1
    tokens[last] = prompts - size * (np.diff(offsets) - 1)
    part = last[tokens[last] < size]
    ids[part] = ids.max() + 1 + np.arange(len(part))
    return Workload(arrival_s, prompts, outputs, outputs, np.full(n, -1), offsets, ids, tokens)


def columns(sim: Sim) -> dict[str, Any]:
    """As a recording has them: times to the digits that it has."""
    times = {name: np.round(sim.requests[name], DIGITS) for name in TIMES}
    first = {"first_admit_ms": times["prefill_admit_ms"]}
    workers = {
        "prefill_worker_idx": sim.requests.prefill_worker,
        "decode_worker_idx": sim.requests.decode_worker - sim.rules.prefills,
    }
    return times | first | workers | {name: sim.requests[name] for name in COUNTS}


def rerun(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """A recording's columns, and those of the same run made by this package: with workers by round robin if they were,
    else as they are recorded."""
    recorded = json.loads(path.read_text(encoding="utf-8"))
    theirs = recorded["columns"]
    given = None
    if recorded["router"] != "round_robin":
        given = tuple(np.array(theirs[f"{role}_worker_idx"]) for role in ("prefill", "decode"))
    gpus = sum(recorded["workers"].values())
    arrival_ms = np.array(theirs["arrival_time_ms"])
    return theirs, columns(served(workload_of(recorded), engine_of(recorded), gpus, given, arrival_ms))
