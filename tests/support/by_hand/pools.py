"""Pools of prompts and outputs with round numbers: a token takes 0.1 ms, computed or sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from prebleexp.lengths.known import Max
from prebleexp.overhead.model import Overhead
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.sim.links import INFINITE
from prebleexp.sim.pools import DECODE, PREFILL, PULL, RESERVE_FIRST, Disaggregation
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import Outcome, State, Workload
from tests.support.costs.linear_cost import LinearCost
from tests.support.hears_at_once import HearsAtOnce

MS = LinearCost(step_s=0.0, token_s=0.0001, context_token_s=0.0, kv_tokens=16 * 1001, gpu_memory_gib=48)
"""A token takes 0.1 ms, whoever computes it; 1,000 blocks can be held."""
SYNCHRONOUS = HearsAtOnce(async_scheduling=False, host_s=0.0)
KV_BYTES = 1000.0


def split(roles: Sequence[int] = (PREFILL, DECODE), **given: Any) -> Disaggregation:
    """A token of KV takes 0.1 ms on the link."""
    usual: dict[str, Any] = {"decode_policy": LeastOutstanding(), "kv_bytes": KV_BYTES, "sharing": INFINITE}
    return Disaggregation(roles=tuple(roles), **usual | {"rate": 1e7, "latency_s": 0.0} | given)


def serve(workload: Workload, pools: Disaggregation | None, counts: Sequence[int] = (1, 1), **given: Any) -> Outcome:
    hardware = given.pop("hardware", MS)
    usual: dict[str, Any] = {"policy": LeastOutstanding(), "engine": SYNCHRONOUS, "lengths": Max(), "seed": 0}
    usual |= {"overhead": Overhead(), "duration_s": 10.0, "horizon": "drain"}
    kinds = [(count, hardware) for count in counts]
    return simulate(workload, gpus=sum(counts), hardware=hardware, kinds=kinds, pools=pools, **usual | given)


class Counted:
    """Looks at the cluster after every event: every request is in one place, and every block is accounted for."""

    def __init__(self, protocol: int, roles: Sequence[int], n: int) -> None:
        self.pulls, self.roles, self.n, self.events = protocol == PULL, roles, n, 0
        self.reserves = protocol == RESERVE_FIRST
        self.mines: list[Any] = []

    def __call__(self, world: Any) -> None:
        self.events += 1
        jobs, requests, n = world.jobs, world.seen.requests, self.n
        second = jobs.state[:n] != State.UNROUTED
        state = np.where(second, jobs.state[:n], jobs.state[n:])
        ended = np.isin(state, (State.FINISHED, State.REFUSED))
        assert world.control.unfinished == n - ended.sum()
        under_way = np.isin(state, (State.HELD, State.RESERVED))
        assert self.reserves or (jobs.state[n:][under_way] == State.FINISHED).all()
        if self.pulls or self.reserves:
            assert np.isnan(jobs.ttft_s[:n][under_way]).all()
        for g, role in enumerate(self.roles):
            here = (requests.gpu[:n] == g) & ~ended & (second | (not self.pulls))
            seen = world.live[g]
            assert seen.kv_free >= 0
            assert seen.evictable >= 0
            assert seen.kv_free + seen.evictable <= seen.kv_tokens
            if role == DECODE:
                assert world.seen.sent[g].outstanding == here.sum()
            elif role == PREFILL:
                waits = (requests.gpu[n:] == g) & np.isin(jobs.state[n:], (State.UNROUTED, State.QUEUED, State.RUNNING))
                assert world.seen.sent[g].outstanding == (waits & ~ended).sum()
