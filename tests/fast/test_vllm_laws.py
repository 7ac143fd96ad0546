"""What holds of every step of `engine=vllm`, on random small streams."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np
import pytest

from prebleexp.engines.vllm.steady import computed_of
from prebleexp.sim.records import NONE
from tests.support.recordings.columns import Columns
from tests.support.recordings.vllm import Watched, engine_of, run
from tests.support.strategies.engine_streams import random_setting


class Audited(Watched):
    """Counts the blocks behind every event: each is free, cached and idle, or held."""

    def __call__(self, world: Any) -> None:
        super().__call__(world)
        mine, gpu = self.mine, self.mine.gpus[0]
        size, runs = mine.settings.block_size, mine.blocks.runs
        idle, at = 0, int(gpu.first)
        while at != NONE:
            assert runs[at].holders == 0
            idle += int(runs[at].high - runs[at].low)
            at = int(runs[at].behind)
        assert gpu.unkeyed >= 0
        assert gpu.unkeyed + idle == gpu.free
        held: dict[int, int] = {}
        own = 0
        for request in mine.running[0, : gpu.running].tolist():
            job = mine.jobs[request]
            steady = job.steady_from != NONE
            own += (-(-computed_of(job, int(gpu.scheduled)) // size) if steady else int(job.blocks)) - int(job.keyed)
            at = int(job.holds)
            while at != NONE:
                left, one = int(mine.blocks.holds[at].blocks), int(mine.blocks.holds[at].run)
                while left > 0:
                    assert runs[one].holders > 0
                    held[one] = int(runs[one].high - runs[one].low)
                    left, one = left - held[one], int(runs[one].above)
                assert left == 0
                at = int(mine.blocks.holds[at].before)
        assert gpu.free + own + sum(held.values()) == mine.settings.blocks


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_blocks_are_conserved_budgets_kept_and_hits_were_computed(seed: int) -> None:
    config, stream = random_setting(seed)
    audited = Audited(engine_of(config))
    run(config, stream, audited, audited)
    steps = audited.lists
    names = names_of_blocks(config["block_size"], stream)
    computed = np.zeros(len(stream["arrival_ns"]), np.int64)
    filled: set[Any] = set()
    admitted_first: list[int] = []
    for row in range(len(audited.rows)):
        tokens = steps["scheduled_tokens"][row]
        assert sum(tokens) <= config["max_num_batched_tokens"]
        assert audited.rows[row]["running"] <= config["max_num_seqs"]
        hits = dict(zip(steps["admitted_request"][row], steps["admitted_hit_tokens"][row], strict=True))
        for request in steps["preempted_request"][row]:
            computed[request] = 0
        for request, new in zip(steps["scheduled_request"][row], tokens, strict=True):
            if request in hits:
                computed[request] = hits[request]
                assert {names(request, at) for at in range(hits[request] // config["block_size"])} <= filled
                if request not in admitted_first:
                    admitted_first.append(request)
            computed[request] += new
            filled.update(names(request, at) for at in range(int(computed[request]) // config["block_size"]))
    if config["policy"] == "fcfs":
        assert admitted_first == sorted(admitted_first), "nobody is overtaken"
    assert len(admitted_first) == len(computed), "nobody starves"


def names_of_blocks(size: int, stream: Columns) -> Any:
    """What the block of a request's context with this number holds: the segment in which it ends, and where."""
    offsets, ids = stream["segment_offsets"], stream["segment_ids"]

    def name(request: int, at: int) -> tuple[int, int]:
        rows = slice(int(offsets[request]), int(offsets[request + 1]))
        ends, end = np.cumsum(stream["segment_tokens"][rows]).tolist(), (at + 1) * size
        if end <= ends[-1]:
            return int(ids[rows][bisect_left(ends, end)]), end
        answer = int(stream["output_segment"][request])
        return (answer if answer >= 0 else -1 - request), end

    return name
