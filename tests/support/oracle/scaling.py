"""The second simulator with an autoscaler, written from docs/core.md and docs/autoscalers.md in plain Python: rules
that read all that was ever seen, and who is started and drained."""

from __future__ import annotations

import heapq
import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np

from prebleexp.engines.sglang.engine import SGLang
from prebleexp.engines.vllm.engine import VLLM
from prebleexp.errors import NeverEnds
from prebleexp.sim.answers import WITHDRAWN
from prebleexp.sim.changes import DRAIN, LIMIT, LOOK, READY, UP
from prebleexp.sim.history import Decision
from prebleexp.sim.pools import ALWAYS, DECODE, NAMES, PREFILL, PULL
from prebleexp.sim.scaling import IN_VAIN
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
        self.fleets = self._fleets(of)
        self.context_length = (of.kinds[0][1] if of.kinds else of.hardware).context_length
        self.past: list[list[Any]] = [[] for _ in self.fleets]
        self.interval_s = self.fleets[0][0].interval_s
        self.started_s = dict.fromkeys(range(of.gpus), 0.0)
        self.still, self.still_s = False, math.nan
        self.in_vain: list[float] = []
        """requests that have not ended, and when since then it changed something"""
        self.timeline.append((math.nan, 0, LOOK, 1.0))
        off = {g for rule, gpus in self.fleets for g in gpus[rule.first :]}
        for g in sorted(off):
            self._switch_off(g, 0.0)
        self._let_be(set(range(of.gpus)) - off)
        self._note(0.0)
        self._look_at(self.interval_s)

    def _fleets(self, of: Any) -> list[tuple[Any, list[int]]]:
        """Rules, and the GPUs of which each says how many there are."""
        if getattr(of, "pools", None) is None:
            return [(of.autoscaler, list(range(of.gpus)))]
        roles = [role for role, (count, _) in zip(of.pools.roles, of.kinds, strict=True) for _ in range(count)]
        fleets = []
        for role in dict.fromkeys(of.pools.roles):
            rule = getattr(of.autoscaler, NAMES[role], of.autoscaler)
            fleets += [(rule, [g for g, its in enumerate(roles) if its == role])] if hasattr(rule, "first") else []
        return fleets

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
            self._scale(now)
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

    def _scale(self, now: float) -> None:
        over, kinds = (
            (State.FINISHED, State.REFUSED, State.CANCELLED, State.EXPIRED),
            [kind for _, kind, _ in self.heap],
        )
        last = zip(self.jobs, self._last(), strict=False)
        present = sum(
            job.number >= 0 and (one.state not in (*over, State.LOST) or one.unnoticed or job.unnoticed)
            for job, one in last
        )
        self.still = all(kind in (REPORT, PAIR) for kind in kinds)
        if self.still and not present:
            return
        empty = [g for g in sorted(self.drained_s) if self._is_empty(g)]
        for g in empty:
            self._switch_off(g, now)
        draining, shown, waits = len(self.drained_s), set[int](), self._waits(present)
        rows, any_left = [], False
        for number, (rule, gpus) in enumerate(self.fleets):
            candidates, its = self._candidates(), set(gpus)
            starting = sorted(g for g, event in self.planned if event == READY and g in its)
            off = [gpu.number for gpu in self.gpus if not gpu.up and math.isnan(gpu.down_since_s)]
            off = [g for g in off if (g, READY) not in self.planned and g in its]
            there = sorted(candidates & its)
            n = len(there) + len(starting)
            any_left = any_left or n + len(off) > 0
            self.past[number].append(self._fleet(there, n, waits[self._is_second(gpus[0])], now))
            wanted = max(rule.least, min(RULES[type(rule).__name__](rule, self.past[number]), len(gpus)))
            begin = off[: max(0, wanted - n)]
            last_first = [sorted(some, key=lambda g: (-self.started_s[g], -g)) for some in (starting, there)]
            leave = (last_first[0] + last_first[1])[: max(0, n - wanted)]
            self.started_s |= dict.fromkeys(begin, now)
            for event, some in ((UP, begin), (DRAIN, leave)):
                for g in some:
                    candidates = self._happens_to(g, event, 1.0, candidates, now)
            self._let_be(candidates)
            shown |= {*begin, *leave}
            rows.append((wanted, len(there), len(starting), len(begin), len(leave)))
        wanted, ready, starting_now, begun, left = map(sum, zip(*rows, strict=True))
        for g in sorted(shown):
            self.gpus[g].publish()
            self.view.gpus[g] = self.view.gpus[g] if self.reports_s else self.gpus[g].seen
        self._tell(0, now)
        self.still = self.still and not (empty or begun or left)
        if not self.still:
            self.decisions.append(Decision(now, wanted, ready, starting_now, draining, begun, left))
        unfinished = sum(one.unnoticed or one.state not in (*over, State.LOST) for one in self._last())
        self._ends(present, unfinished, begun + left, now)
        self.still_s = math.nan if not self.still else now if math.isnan(self.still_s) else self.still_s
        remembers_s = max(rule.memory_s for rule, _ in self.fleets) + self.reports_s + self.interval_s
        if not self.still or (any_left and now - self.still_s <= remembers_s):
            self._look_at(now + self.interval_s)

    def _ends(self, present: int, unfinished: int, changes: int, now: float) -> None:
        if self.in_vain[:1] != [unfinished] or not present:
            self.in_vain = [unfinished]
        self.in_vain += [now] if changes else []
        if len(self.in_vain) == 1 + IN_VAIN:
            raise NeverEnds(f"{now:,.0f}")

    def _waits(self, present: int) -> tuple[int, int]:
        """Requests that are sent nowhere; with roles, and those that wait for their second GPU."""
        out = [int(self.view.sent[g].outstanding) for g in range(len(self.gpus))]
        roles = getattr(self, "roles", None)
        if roles is None:
            return present - sum(out), 0
        outputs_first = self.pools.decider != ALWAYS
        gated = isinstance(self, GatewayOracle)  # whose queue has requests, whatever of them is asked about first
        queue = [self._first_of(job) for job in self.queue] if gated else self.queue
        asked = [*queue, *self.held, *(self.jobs[i] for i, one in self.deciding.items() if one != WITHDRAWN)]
        asked += [*getattr(self, "second", []), *getattr(self, "second_held", [])]
        over = (State.CANCELLED, State.EXPIRED, State.REFUSED)
        second = sum((job.index >= self.n) == outputs_first for job in asked if job.state not in over)
        pull = self.pools.protocol == PULL and not outputs_first
        away = sum(one for g, one in enumerate(out) if pull or roles[g] != PREFILL)
        return present - away - (0 if outputs_first else second), second

    def _is_second(self, g: int) -> int:
        """Whether it is among the GPUs of which one is chosen second."""
        roles = getattr(self, "roles", None)
        return int(roles is not None and roles[g] == (PREFILL if self.pools.decider != ALWAYS else DECODE))

    def _fleet(self, there: list[int], n: int, waits: int, now: float) -> Any:
        seen = [self.view.gpus[g] for g in there]
        use = [1.0 - (one.kv_free + one.evictable) / one.kv_tokens for one in seen]
        return SimpleNamespace(
            at_s=now,
            n=n,
            in_flight=[int(self.view.sent[g].outstanding) for g in there],
            queued=[one.queued for one in seen],
            waiting_tokens=[one.waiting_tokens for one in seen],
            kv_use=use,
            waiting=waits,
            context_length=self.context_length,
        )


class ScaledReal(ScaledOracle, FaultyOracle):
    """With vLLM's scheduler, or SGLang's."""


class ScaledGateway(ScaledOracle, GatewayOracle):
    """Behind a gateway."""


def simulate(workload: Workload, **given: Any) -> Outcome:
    """As `prebleexp.sim.simulate.simulate` with an autoscaler, of lengths Max."""
    usual = {"reports_ms": 0.0, "kinds": (), "faults": None}
    of = SimpleNamespace(**usual | given)
    if isinstance(of.engine, VLLM | SGLang):
        return ScaledReal(workload, of).run()
    return ScaledGateway(workload, of, False).run() if "gateway" in given else ScaledOracle(workload, of, False).run()
