"""A Kubernetes Service without a gateway."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from prebleexp.checks import is_number, require
from prebleexp.policies.base import Policy
from prebleexp.policies.candidates import is_candidate
from prebleexp.sim.compiled import compiled
from prebleexp.sim.draws import below, generator
from prebleexp.sim.records import View
from prebleexp.sim.types import Setup


class Connections(NamedTuple):
    """Idle ones, the last to be used last."""

    gpu: Any
    """(most,) where each leads"""
    since_s: Any
    """(most,) since when it is idle"""
    idle: Any
    """(1,) how many there are"""
    draws: Any


@dataclass(frozen=True)
class KubernetesService(Policy):
    """kube-proxy draws a GPU for each connection, all alike. The client keeps connections: a request takes the one that
    was used last of those that are idle, or opens one where there is none. One that was idle for longer than
    `keep_alive_s` is closed.

    Source: kube-proxy's iptables rules; aiohttp's pool of connections (keepalive_timeout 15 s); read. Not there:
    several clients with pools of their own, and other modes of kube-proxy (IPVS goes round robin).
    """

    keep_alive_s: float = 15.0
    """0: each request opens a connection, so that GPUs are drawn"""

    reads_lengths: ClassVar[bool] = False

    def __post_init__(self) -> None:
        valid = is_number(self.keep_alive_s) and self.keep_alive_s >= 0
        require(valid, "policy.keep_alive_s", self.keep_alive_s, "a number of seconds >= 0")

    def start(self, setup: Setup) -> Connections:
        most = setup.requests
        return Connections(np.zeros(most, np.int32), np.zeros(most), np.zeros(1, np.int64), generator(setup.seed))

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        while mine.idle[0] > 0:
            mine.idle[0] -= 1
            last = mine.idle[0]
            if now - mine.since_s[last] > self.keep_alive_s:
                mine.idle[0] = 0  # those before it are idle for longer
            elif is_candidate(view.candidates, int(mine.gpu[last])):
                return int(mine.gpu[last])
        return int(view.candidates[below(mine.draws, len(view.candidates))])

    def finished(self, mine: Any, view: View, request: int, now: float) -> None:
        if self.keep_alive_s > 0:
            _give_back(mine, view.requests[request].gpu, now)


@compiled
def _give_back(mine: Connections, gpu: int, now: float) -> None:
    mine.gpu[mine.idle[0]], mine.since_s[mine.idle[0]] = gpu, now
    mine.idle[0] += 1
