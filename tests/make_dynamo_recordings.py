"""Small random workloads, most with scarce memory, served by Dynamo's replay as released.

    PYTHON -m tests.make_dynamo_recordings

with a Python that has ai-dynamo and ai-dynamo-runtime 1.6.1; writes tests/data/dynamo_pd/dynamo_pd_<case>.json,
as the recordings in ../shared/fidelity/clusters are.
"""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "data" / "dynamo_pd"
SIZE, REQUESTS = 16, 50
USUAL = {
    "block_size": SIZE,
    "num_gpu_blocks": 2048,
    "max_num_seqs": 64,
    "max_num_batched_tokens": 2048,
    "backend": "vllm",
    "kv_transfer_bytes_per_token": 100_000,
    "kv_transfer_bandwidth": 1.0,
    "kv_transfer_timing_mode": "full_prompt",
    "preemption_mode": "lifo",
}
MISSING = {"kv_transfer_timing_mode": "destination_missing"}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "scarce_prefill": ({"num_gpu_blocks": 60, "max_num_batched_tokens": 256}, {}, MISSING),
    "scarce_decode": ({}, {"num_gpu_blocks": 90}, MISSING),
    "scarce_both": ({"num_gpu_blocks": 80}, {"num_gpu_blocks": 110, "max_num_seqs": 8}, {}),
    "seats": ({"max_num_seqs": 2}, {"max_num_seqs": 3}, MISSING),
    "at_once": ({}, {"num_gpu_blocks": 120}, {"kv_transfer_bandwidth": 0.0}),
    "sglang": ({}, {}, {"backend": "sglang", **MISSING}),
    "trtllm": ({}, {}, {"backend": "trtllm", **MISSING}),
}
"""settings of prefill workers, of decode workers, of both"""
COLUMNS = (
    *("prefill_worker_idx", "decode_worker_idx", "prefill_admit_ms", "first_admit_ms", "source_held_ms"),
    *("destination_reserved_ms", "destination_activated_ms", "decode_admit_ms", "source_released_ms", "first_token_ms"),
    *("terminal_time_ms", "reused_input_tokens", "decode_reused_input_tokens", "readmission_count"),
)


def drawn(case: str) -> dict[str, Any]:
    """Prompts that begin with one of three documents, some that are another's; lengths of whole blocks now and then."""
    rng, number = random.Random(case), 0
    documents = [[1000 * i + j for j in range(length)] for i, length in enumerate((4, 12, 20))]
    blocks: list[list[int]] = []
    lengths, outputs, arrivals, now = [], [], [], 0.0
    for i in range(REQUESTS):
        beginning = rng.choice([*documents, *blocks[:i], []])
        length = len(beginning) * SIZE if rng.random() < 0.2 and beginning else rng.randrange(1, 500)
        prompt = list(beginning[: length // SIZE])
        while len(prompt) < -(-length // SIZE):
            prompt.append(100_000 + number)
            number += 1
        blocks.append(prompt)
        lengths.append(length)
        outputs.append(rng.randrange(1, 100))
        arrivals.append(round(now, 3))
        now += rng.expovariate(0.03) + 0.001
    return {"blocks": blocks, "columns": dict(zip(NAMES, (arrivals, lengths, outputs), strict=True))}


NAMES = ("arrival_time_ms", "input_length", "output_length")


def recorded(case: str) -> dict[str, Any]:
    from dynamo._core import _normalize_mocker_config
    from dynamo.replay import run_trace_replay

    made, (prefill, decode, both) = drawn(case), CASES[case]
    columns = made["columns"]
    rows = zip(*columns.values(), made["blocks"], strict=True)
    names = ("timestamp", "input_length", "output_length", "hash_ids")
    engines = {
        role: USUAL | both | own | {"timing_model": {"type": "fixed", "prefill_ms": 30.0, "decode_ms": 10.0}}
        for role, own in (("prefill", prefill), ("decode", decode))
    }
    args = {
        f"{role}_engine_args": _normalize_mocker_config(json.dumps({"engine": one | {"worker_type": role}}))
        for role, one in engines.items()
    }
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as trace:
        trace.writelines(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
        trace.flush()
        report = run_trace_replay(
            [trace.name],
            **args,
            num_prefill_workers=2,
            num_decode_workers=2,
            router_mode="round_robin",
            trace_block_size=SIZE,
            capture_per_request=True,
        )
    served = sorted(report.per_request, key=lambda one: one["arrival_time_ms"])
    assert [one["input_length"] for one in served] == columns["input_length"]
    for name in COLUMNS:
        columns[name] = [round(one[name], 6) for one in served]
    return {
        "source": "ai-dynamo 1.6.1 offline replay",
        "name": case,
        "router": "round_robin",
        "workers": {"prefill": 2, "decode": 2},
        **{f"{role}_engine": one for role, one in engines.items()},
        **made,
    }


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in CASES:
        text = json.dumps(recorded(name), separators=(",", ":"))
        (FOLDER / f"dynamo_pd_{name}.json").write_text(text + "\n", encoding="utf-8")
