"""Host tiers against the recordings of Dynamo's replay (ai-dynamo 1.6.1), whose host is nearly vLLM's: one worker with
a host that holds a hundred blocks, three hundred, and all that there are.

What differs is the replay's: it hears of a load at once, where vLLM's scheduler does with a step's results; a load
takes blocks for the whole context; and what is stored is held until it is there. vLLM's own connector is equal in
every column of its recordings (`test_vllm_features_fidelity.py`).
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from prebleexp.lengths.known import Max
from prebleexp.overhead.model import Overhead
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.sim.simulate import simulate
from prebleexp.sim.tiering import Tier, Tiering
from prebleexp.sim.types import Outcome, Workload
from tests.support.costs.phase_cost import PhaseCost
from tests.support.hears_at_once import HearsAtOnce
from tests.support.recordings.splitwise import FOLDER

CASES = {"dynamo_host_1w_2000_slow": (0, 33), "dynamo_host_1w_100": (8, 14), "dynamo_host_1w_300": (19, 49)}
"""how many requests find another number of tokens, and get their first token at another time: with the replay's own
rules for loads and stores, and its order of dropping unknown, these were (0, 2), (9, 7) and (22, 43)"""


def workload_of(recorded: dict[str, Any]) -> Workload:
    """A block is a segment; equal ones have equal pasts."""
    columns, blocks = recorded["columns"], recorded["blocks"]
    known: dict[tuple[tuple[int, ...], int], int] = {}
    ids, tokens = [], []
    for row, length in zip(blocks, columns["input_length"], strict=True):
        for at in range(len(row)):
            tokens.append(min(16, length - 16 * at))
            ids.append(known.setdefault((tuple(row[: at + 1]), tokens[-1]), len(known)))
    outputs = np.array(columns["output_length"])
    return Workload(
        arrival_s=np.array(columns["arrival_time_ms"]) / 1e3,
        prompt_tokens=np.array(columns["input_length"]),
        output_tokens=outputs,
        max_new_tokens=outputs,
        prefix_group=np.full(len(outputs), -1),
        segment_offsets=np.cumsum([0, *map(len, blocks)]),
        segment_ids=np.array(ids),
        segment_tokens=np.array(tokens),
    )


def rerun(recorded: dict[str, Any]) -> Outcome:
    engine = recorded["engine"]
    host, kv_bytes = engine["native_host_offload"], float(engine["kv_cache_bytes_per_token"])
    rates = (host["h2d_bandwidth_gbps"] * 1e9, host["d2h_bandwidth_gbps"] * 1e9)
    times = engine["timing_model"]
    hardware = PhaseCost(times["prefill_ms"] / 1e3, times["decode_ms"] / 1e3, 16 * (engine["num_gpu_blocks"] + 1))
    seats = {name: engine[name] for name in ("max_num_seqs", "max_num_batched_tokens")}
    return simulate(
        workload_of(recorded),
        gpus=1,
        policy=LeastOutstanding(),
        hardware=hardware,
        engine=HearsAtOnce(async_scheduling=False, host_s=0.0, **seats),
        lengths=Max(),
        overhead=Overhead(),
        duration_s=1.0,
        horizon="drain",
        seed=0,
        tiers=Tiering(kv_bytes, Tier(host["num_host_blocks"] * 16 * kv_bytes, *rates, 0.0)),
    )


@pytest.mark.parametrize("case", [case for case in CASES if (FOLDER / f"{case}.json").exists()])
def test_what_is_found_and_when_is_nearly_that_of_dynamos_replay(case: str) -> None:
    recorded = json.loads((FOLDER / f"{case}.json").read_text(encoding="utf-8"))
    columns, made = recorded["columns"], rerun(recorded)
    found = made.hit_tokens + made.host_tokens
    first_ms = (np.array(columns["arrival_time_ms"]) / 1e3 + made.ttft_s) * 1e3
    other = (
        int((found != columns["reused_input_tokens"]).sum()),
        int((abs(first_ms - columns["first_token_ms"]) > 1e-5).sum()),
    )
    assert other == CASES[case]
