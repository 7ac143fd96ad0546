"""GPUs whose reports and books change are known to those who keep what they make of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pytest

from prebleexp.bench import decisions
from prebleexp.experiment import runs
from prebleexp.launch import configure
from prebleexp.lengths.known import Max
from prebleexp.policies import lor
from prebleexp.policies.base import Policy
from prebleexp.policies.research import llumnix_freeness as freeness
from prebleexp.sim import world
from prebleexp.sim.records import View
from prebleexp.sim.simulate import simulate
from prebleexp.sim.touching import uncounted
from prebleexp.sim.types import Setup, State, Workload
from tests.support.sampled import examples
from tests.support.strategies.chaos import chaos


class Kept:
    """What was seen at the last decision, and how often any GPU had been touched then."""

    def __init__(self) -> None:
        self.times, self.seen = 0, [b""]


@dataclass(frozen=True)
class Watching(Policy):
    """Takes one GPU after the other, and compares all of them with what they were at its last decision."""

    counts: dict[str, int] = field(default_factory=lambda: {"decisions": 0, "untouched": 0, "missed": 0})

    compiled: ClassVar[bool] = False
    reads_lengths: ClassVar[bool] = False

    def start(self, setup: Setup) -> Kept:
        return Kept()

    def route(self, mine: Kept, view: View, request: int, now: float) -> int:
        times, gpus, size = int(view.touched.times[0]), len(view.sent), len(view.touched.gpus)
        seen = [view.sent[g].tobytes() + view.gpus[g].tobytes() for g in range(gpus)]
        if times > 0 and times - mine.times <= size:
            touched = {int(view.touched.gpus[i % size]) for i in range(mine.times, times)}
            others = set(range(gpus)) - touched
            self.counts["decisions"] += 1
            self.counts["untouched"] += len(others)
            self.counts["missed"] += sum(seen[g] != mine.seen[g] for g in others)
        mine.times, mine.seen = times, seen
        return int(view.candidates[request % len(view.candidates)])


def watched(workload: Workload, cluster: dict[str, Any]) -> dict[str, int]:
    policy = Watching()
    if "pools" in cluster:
        cluster |= {"pools": replace(cluster["pools"], decode_policy=policy)}
    simulate(workload, **cluster | {"policy": policy, "lengths": Max()})
    return policy.counts


@pytest.mark.slow  # compiles as many kinds of clusters as it looks at
def test_whoever_changed_was_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever happens to the cluster. More is remembered than there are GPUs, so that more is looked at."""
    monkeypatch.setattr(world, "uncounted", lambda gpus: uncounted(1000))
    counts = [watched(*chaos(number)) for number in range(examples(120))]
    assert [number for number, one in enumerate(counts) if one["missed"] > 0] == []
    assert sum(one["untouched"] > 0 for one in counts) > len(counts) / 6


@pytest.mark.slow
def test_few_are_touched_between_two_decisions() -> None:
    cell = configure.cells(["gpus=40", "rps=320", "duration_s=5"])[0]
    policy = Watching()
    runs.simulate_cell(replace(cell, policy=policy), runs.draw(cell))
    assert policy.counts["missed"] == 0
    assert policy.counts["untouched"] > 0.7 * 40 * policy.counts["decisions"] > 0


@pytest.mark.parametrize("gpus", [1, 2, 3, 8, 9, 256])
def test_as_many_are_remembered_as_there_are(gpus: int) -> None:
    size = len(uncounted(gpus).gpus)
    assert gpus <= size < 2 * gpus
    assert size & (size - 1) == 0


@dataclass(frozen=True)
class PlainFreeness(Policy):
    """Llumnix's dispatch, which looks at all GPUs and divides without rounding."""

    compiled: ClassVar[bool] = False
    reads_lengths: ClassVar[bool] = False

    def route(self, mine: None, view: View, request: int, now: float) -> int:
        def tokens(g: int) -> Fraction | float:
            gpu, requests = view.gpus[g], int(view.sent[g].outstanding)
            return Fraction(int(gpu.kv_free + gpu.evictable - gpu.waiting_tokens), requests) if requests else np.inf

        view.work[3] += len(view.candidates)
        return max(view.candidates.tolist(), key=tokens)


@dataclass(frozen=True)
class PlainLeast(Policy):
    """Least outstanding requests, which reads all books."""

    compiled: ClassVar[bool] = False
    reads_lengths: ClassVar[bool] = False

    def route(self, mine: None, view: View, request: int, now: float) -> int:
        view.work[3] += len(view.candidates)
        return min(view.candidates.tolist(), key=lambda g: int(view.sent[g].outstanding))


KNOWN = {"llumnix_freeness": (freeness.FEW, PlainFreeness()), "lor": (lor.FEW, PlainLeast())}
"""how many GPUs are looked at without more ado, and who looks at all"""

LITTLE = ("engine=vllm", "hardware.kv_tokens=6000")
CASES = {
    "much memory": ("engine=sglang_2024", "rps=800"),
    "little memory": (*LITTLE, "rps=1200"),
    "reports of a while ago": ("engine=sglang", "rps=800", "reports_ms=100"),
    "GPUs that fail": ("engine=vllm", "rps=800", "faults=rates", "faults.mtbf_h=0.005", "faults.mttr_h=0.0003"),
    "several routers": ("engine=vllm", "rps=800", "gateway.replicas=2", "gateway.gossip_ms=20"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("policy", KNOWN)
def test_what_is_kept_of_many_gpus_is_what_they_are(policy: str, case: str) -> None:
    few, plainly = KNOWN[policy]
    cell = configure.cells([f"gpus={few + 3}", "duration_s=2", f"policy={policy}", *CASES[case]])[0]
    workload = runs.draw(cell)
    known = runs.simulate_cell(cell, workload)
    plain = runs.simulate_cell(replace(cell, policy=plainly), workload)
    np.testing.assert_array_equal(known.gpu, plain.gpu)
    np.testing.assert_array_equal(known.latency_s, plain.latency_s)
    assert (known.state == State.FINISHED).any()


ALSO = {"sglang_manual": ("policy.assignment_mode=min_load",)}
"""without which a router looks at nothing"""


def looks(mine: Any) -> bool:
    """Whether somebody notes in what he remembers when he looked last."""
    names = getattr(mine, "_fields", ())
    return "looked" in names or any(looks(getattr(mine, name)) for name in names)


@pytest.mark.slow
@pytest.mark.parametrize("policy", decisions.routers())
def test_who_looks_at_what_has_changed_decides_as_who_looks_at_all(policy: str) -> None:
    """At all is looked where nobody counts."""
    full = ("gateway.max_in_flight=30", *ALSO.get(policy, ()))  # some are no candidates
    cell = configure.cells(["gpus=40", "rps=1200", "duration_s=2", f"policy={policy}", *LITTLE, *full])[0]
    workload = runs.draw(cell)
    turn, session = np.divmod(np.arange(len(workload), dtype=np.int32), np.int32(600))
    workload = replace(workload, session=session, turn=turn)
    setup = Setup(cell.gpus, 0, len(workload), cell.hardware.kv_tokens, cell.hardware.context_length, workload)
    if not looks(cell.policy.start(setup)):
        return

    def count_no_more(world: Any) -> None:
        world.seen.touched.times[0] = 0

    known = runs.simulate_cell(cell, workload)
    looked = runs.simulate_cell(cell, workload, on_event=count_no_more)
    for name in ("gpu", "latency_s", "state"):
        np.testing.assert_array_equal(getattr(known, name), getattr(looked, name))
    assert len(set(known.gpu.tolist())) > 1
