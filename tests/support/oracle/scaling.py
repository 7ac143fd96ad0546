"""The second simulator with an autoscaler, written from docs/core.md and docs/autoscalers.md in plain Python: rules
that read all that was ever seen, and who is started and drained."""

from __future__ import annotations

import heapq
import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np

from prebleexp.engines.vllm.engine import VLLM
from prebleexp.sim.changes import DRAIN, LIMIT, LOOK, READY, UP
from prebleexp.sim.history import Decision
from prebleexp.sim.types import Outcome, State, Workload
from tests.support.oracle.core import CHANGE, PAIR, REPORT, Oracle
from tests.support.oracle.faults import FaultyOracle
from tests.support.oracle.gateway import GatewayOracle


# ---------------------------------------------------------------- rules
def of_late(past: list[Any], seconds: float) -> list[Any]:
    """Of what was seen, what is no older than that."""
    return list(itertools.takewhile(lambda seen: past[-1].at_s - seen.at_s <= seconds, reversed(past)))


def hpa(rule: Any, past: list[Any]) -> int:
    """`past`: all that was seen, the last of it now."""

    def wants(seen: Any) -> int:
        load = getattr(seen, rule.load)
        ratio = (float(np.mean(load)) if len(load) else 0.0) / rule.target
        return seen.n if abs(ratio - 1) <= rule.tolerance else math.ceil(seen.n * ratio)

    now = past[-1]
    if wants(now) > now.n:
        return min(wants(now), now.n + max(now.n, rule.burst))
    return min(now.n, max(wants(seen) for seen in of_late(past, rule.window_s)))


def keda(rule: Any, past: list[Any]) -> int:
    now = past[-1]
    active = now.waiting + sum(now.in_flight) > 0
    now.active_s = now.at_s if active else past[-2].active_s if len(past) > 1 else 0.0
    if now.at_s - now.active_s >= rule.cooldown_s:
        return 0
    return max(1 if active or now.n else 0, hpa(rule, past))


def knative(rule: Any, past: list[Any]) -> int:
    def needs(seconds: float) -> int:
        late = [seen for seen in of_late(past, seconds) if past[-1].at_s - seen.at_s < seconds]
        counts = [seen.waiting + sum(seen.in_flight) for seen in late]
        return math.ceil(sum(counts) / len(counts) / (rule.target * rule.utilisation))

    now, panic = past[-1], needs(rule.panic_s)
    until_s, most = (past[-2].until_s, past[-2].most) if len(past) > 1 else (-math.inf, 0)
    now.until_s = now.at_s + rule.stable_s if panic >= rule.panic_threshold * max(1, now.n) else until_s
    now.most = max(most, panic, now.n) if now.at_s < now.until_s else 0
    return now.most if now.at_s < now.until_s else needs(rule.stable_s)


def dynamo_load(rule: Any, past: list[Any]) -> int:
    now = past[-1]
    if not len(now.in_flight):
        return int(now.n)
    tokens, used = float(np.mean(now.waiting_tokens)) / now.context_length, float(np.mean(now.kv_use))
    if tokens > rule.queued_up or used > rule.kv_up:
        return int(now.n) + 1
    return int(now.n) - 1 if tokens < rule.queued_down and used < rule.kv_down else int(now.n)


RULES = {"HPA": hpa, "KEDA": keda, "Knative": knative, "DynamoLoad": dynamo_load}


# ---------------------------------------------------------------- GPUs
class ScaledOracle(Oracle):
    def __init__(self, workload: Workload, of: Any, *given: Any) -> None:
        super().__init__(workload, of, *given)
        self.rule, self.past = of.autoscaler, list[Any]()
        self.started_s = dict.fromkeys(range(of.gpus), 0.0)
        self.still, self.still_s = False, math.nan
        self.timeline.append((math.nan, 0, LOOK, 1.0))
        for g in range(self.rule.first, of.gpus):
            self._switch_off(g, 0.0)
        self._let_be(set(range(self.rule.first)))
        self._note(0.0)
        self._look_at(self.rule.interval_s)

    def _look_at(self, at_s: float) -> None:
        heapq.heappush(self.heap, (at_s, CHANGE, len(self.timeline) - 1))

    def _is_part(self, kind: int, subject: int) -> bool:
        """Nor is a look that changes nothing, where nothing else is to happen."""
        looked = kind == CHANGE and self.timeline[subject][2] == LOOK
        return super()._is_part(kind, subject) and not (looked and self.still)

    def _switch_off(self, g: int, now: float) -> None:
        self.planned.pop((g, LIMIT), None)
        self._is_off(g, now)
        self.gpus[g].up, self.gpus[g].gone = False, True
        self._leaves(g, now)
        self.gpus[g].lose()

    def _change(self, g: int, event: int, factor: float, now: float) -> None:
        gpu = self.gpus[g]
        if event == LOOK:
            self._look(now)
            self._release()
        elif event == UP:  # it may be started again
            if not math.isnan(gpu.down_since_s):
                gpu.down_s += now - gpu.down_since_s
                gpu.down_since_s, gpu.gone = math.nan, True
                self.news += [("changed", -1, g, 0)] if g in self._candidates() else []
                self._let_be(self._candidates() - {g})
            self._tell(g, now)
            self._release()
        else:
            super()._change(g, event, factor, now)

    def _look(self, now: float) -> None:
        over, kinds = (
            (State.FINISHED, State.REFUSED, State.CANCELLED, State.EXPIRED),
            [kind for _, kind, _ in self.heap],
        )
        present = sum(job.number >= 0 and (job.state not in (*over, State.LOST) or job.unnoticed) for job in self.jobs)
        self.still = all(kind in (REPORT, PAIR) for kind in kinds)
        if self.still and not present:
            return
        empty = [g for g in sorted(self.drained_s) if self.view.sent[g].outstanding == 0]
        for g in empty:
            self._switch_off(g, now)
        candidates, starting = self._candidates(), sorted(g for g, event in self.planned if event == READY)
        off = [gpu.number for gpu in self.gpus if not gpu.up and math.isnan(gpu.down_since_s)]
        off = [g for g in off if g not in starting]
        n, there, draining = len(candidates) + len(starting), sorted(candidates), len(self.drained_s)
        self.past.append(self._fleet(there, n, present, now))
        wanted = max(self.rule.least, min(RULES[type(self.rule).__name__](self.rule, self.past), len(self.gpus)))
        begin = off[: max(0, wanted - n)]
        last_first = [sorted(some, key=lambda g: (-self.started_s[g], -g)) for some in (starting, there)]
        leave = (last_first[0] + last_first[1])[: max(0, n - wanted)]
        self.started_s |= dict.fromkeys(begin, now)
        for event, gpus in ((UP, begin), (DRAIN, leave)):
            for g in gpus:
                candidates = self._happens_to(g, event, 1.0, candidates, now)
        self._let_be(candidates)
        for g in [*begin, *leave]:
            self.gpus[g].publish()
            self.view.gpus[g] = self.view.gpus[g] if self.reports_s else self.gpus[g].seen
        self._tell(0, now)
        self.still = self.still and not (empty or begin or leave)
        if not self.still:
            done = (len(begin), len(leave))
            self.decisions.append(Decision(now, wanted, len(there), len(starting), draining, *done))
        self.still_s = math.nan if not self.still else now if math.isnan(self.still_s) else self.still_s
        remembers_s = self.rule.memory_s + self.reports_s + self.rule.interval_s
        if not self.still or (n + len(off) > 0 and now - self.still_s <= remembers_s):
            self._look_at(now + self.rule.interval_s)

    def _fleet(self, there: list[int], n: int, present: int, now: float) -> Any:
        seen = [self.view.gpus[g] for g in there]
        use = [1.0 - (one.kv_free + one.evictable) / one.kv_tokens for one in seen]
        return SimpleNamespace(
            at_s=now,
            n=n,
            in_flight=[int(self.view.sent[g].outstanding) for g in there],
            queued=[one.queued for one in seen],
            waiting_tokens=[one.waiting_tokens for one in seen],
            kv_use=use,
            waiting=present - sum(int(self.view.sent[g].outstanding) for g in range(len(self.gpus))),
            context_length=self.setup.context_length,
        )


class ScaledVllm(ScaledOracle, FaultyOracle):
    """With vLLM's scheduler."""


class ScaledGateway(ScaledOracle, GatewayOracle):
    """Behind a gateway."""


def simulate(workload: Workload, **given: Any) -> Outcome:
    """As `prebleexp.sim.simulate.simulate` with an autoscaler, of lengths Max."""
    usual = {"reports_ms": 0.0, "kinds": (), "faults": None}
    of = SimpleNamespace(**usual | given)
    if isinstance(of.engine, VLLM):
        return ScaledVllm(workload, of).run()
    return ScaledGateway(workload, of, False).run() if "gateway" in given else ScaledOracle(workload, of, False).run()
