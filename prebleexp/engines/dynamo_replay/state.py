"""The arrays of a run, made for a workload and its workers."""

from __future__ import annotations

from typing import Any

import numpy as np

from prebleexp.engines.dynamo_replay import records as own
from prebleexp.engines.dynamo_replay.engine import SGLANG_TOKENS, DynamoReplay
from prebleexp.engines.dynamo_replay.records import Pool, Rules, Sim
from prebleexp.engines.serial_heap import Events
from prebleexp.sim import records as core
from prebleexp.sim.children import slots
from prebleexp.sim.handles import Block
from prebleexp.sim.records import NONE
from prebleexp.sim.types import Longs, Workload, records

TIMES = tuple(
    name for name in own.REQUEST.names or () if name.endswith("_ms") and name not in ("arrival_ms", "transfer_ms")
)


def allocate(
    workload: Workload,
    engine: DynamoReplay,
    gpus: int,
    end_ms: float,
    pause: int,
    workers: tuple[Longs, Longs] | None = None,
) -> Sim:
    """State at time 0: nobody has arrived. `workers`: of each request its prefill and its decode worker, each counted
    from 0, in place of round robin."""
    n, prefills, size = len(workload), engine.prefills(gpus), engine.block_size
    rules = _rules(engine, gpus, end_ms, pause, workers is not None)
    control = records(1, own.CONTROL)[0]
    control.unfinished = n
    requests = records(n, own.REQUEST)
    requests.arrival_ms, requests.prompt = workload.arrival_s * 1e3, workload.prompt_tokens
    requests.output = np.minimum(workload.output_tokens, workload.max_new_tokens)
    requests.prefill_worker = requests.decode_worker = requests.p_next = requests.d_next = NONE
    for name in TIMES:
        requests[name] = np.nan
    if workers is not None:
        requests.prefill_worker, requests.decode_worker = workers[0], workers[1] + prefills
    full, needed = requests.prompt // size, -(-requests.prompt // size)
    finally_needed = -(-(requests.prompt + requests.output - 1) // size)
    requests.first_key, requests.p_first, requests.d_first = map(_before, (full, needed, finally_needed))
    keys = _keys(workload, size)
    own_keys = finally_needed - full + 1
    requests.own_key = keys.max(initial=NONE) + 1 + _before(own_keys) - full
    never = (needed > engine.num_gpu_blocks) | (finally_needed > engine.of_decode("num_gpu_blocks"))
    requests.stage[never] = own.REFUSED
    rows, live = records(gpus, own.WORKER), records(gpus, core.REPORT)
    demand = int(needed.sum()), int(finally_needed.sum())  # more than that no worker ever uses
    rows.blocks[:prefills] = min(engine.num_gpu_blocks, demand[0])
    rows.blocks[prefills:] = min(engine.of_decode("num_gpu_blocks"), demand[1])
    live.kv_tokens[:prefills] = engine.num_gpu_blocks * size
    live.kv_tokens[prefills:] = engine.of_decode("num_gpu_blocks") * size
    live.kv_free = live.kv_tokens
    for name in ("waiting", "releasing", "held", "arrived", "oldest", "newest", "tried"):
        rows[name] = NONE
    most = n + gpus + 1  # a transfer of each request, a step of each worker
    running = max(min(n, rules.prefill_seqs), min(n, rules.decode_seqs), 1)
    return Sim(
        control=control,
        rules=rules,
        events=Events(np.zeros(most), np.zeros(most, np.int64), np.zeros(most, np.int64)),
        requests=requests,
        workers=rows,
        pool=_pool(rows),
        keys=keys,
        p_blocks=np.zeros(demand[0], np.int32),
        d_blocks=np.zeros(demand[1], np.int32),
        running=np.zeros((gpus, running), np.int32),
        handed_over=np.zeros(n, np.int32),
        ended=np.zeros(gpus, np.int32),
        touched=np.zeros(gpus, np.int32),
        totals=records(gpus, core.TOTALS),
        servers=records(gpus, core.SERVER),
        live=live,
    )


def _rules(engine: DynamoReplay, gpus: int, end_ms: float, pause: int, routed: bool) -> Rules:
    prefills, sglang, trtllm = engine.prefills(gpus), engine.backend == "sglang", engine.backend == "trtllm"
    return Rules(
        prefills=prefills,
        decodes=gpus - prefills,
        reserve_first=sglang,
        late=sglang,
        shared=not trtllm,
        again=not trtllm,
        routed=routed,
        block_size=engine.block_size,
        prefill_seqs=engine.max_num_seqs,
        prefill_tokens=SGLANG_TOKENS if sglang else engine.max_num_batched_tokens,
        decode_seqs=engine.of_decode("max_num_seqs"),
        decode_tokens=engine.of_decode("max_num_batched_tokens"),
        prefill_ms=float(engine.prefill_ms),
        decode_ms=float(engine.decode_ms),
        token_bytes=engine.kv_transfer_bytes_per_token,
        link=float(engine.kv_transfer_bandwidth) * 1e9,
        whole_prompt=engine.kv_transfer_timing_mode == "full_prompt",
        end_ms=end_ms,
        pause=pause,
    )


def _before(counts: Longs) -> Longs:
    """(n,) how many there are in all rows before each."""
    return np.cumsum(counts) - counts


def _keys(workload: Workload, size: int) -> Longs:
    """Of the full blocks of all prompts, from 0 on: equal for equal tokens with an equal past. A segment id stands for
    its whole path, so that the blocks that end in it have numbers of their own, wherever it stands."""
    tokens, prompts = workload.segment_tokens.astype(np.int64), workload.prompt_tokens.astype(np.int64)
    starts = _before(tokens) - np.repeat(_before(prompts), np.diff(workload.segment_offsets))
    first = starts // size
    blocks = (starts + tokens) // size - first
    counts = np.zeros(int(workload.segment_ids.max(initial=NONE)) + 1, np.int64)
    counts[workload.segment_ids] = blocks
    names = _before(counts)[workload.segment_ids]
    keys: Longs = np.repeat(names - _before(blocks), blocks) + np.arange(blocks.sum())
    return keys


def _pool(workers: Any) -> Pool:
    """A pool in which no block is used."""
    total = int(workers.blocks.sum())
    workers.unused = _before(workers.blocks)
    blocks = records(total, own.BLOCK)
    blocks.key = blocks.before = NONE
    blocks.behind = np.arange(1, total + 1)
    blocks.behind[np.cumsum(workers.blocks) - 1] = NONE
    return Pool(blocks, *slots(total))


def _example() -> Block:
    one = np.ones(1, np.int32)
    workload = Workload(np.zeros(1), one, one, one, one, np.array([0, 1]), one, one)
    return Block(allocate(workload, DynamoReplay(), 2, 1.0, 1))


EXAMPLE = _example()
"""its type is that of every run's state"""
