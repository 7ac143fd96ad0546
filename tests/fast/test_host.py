"""A policy outside of a simulation answers as the one within: to the same questions, behind the same notices."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.experiment.cell import Cell
from prebleexp.launch import configure
from prebleexp.live.host import Host
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.policies.replay import Replay
from prebleexp.sim import notices
from prebleexp.sim.records import View
from prebleexp.sim.types import Room
from tests.support.places import ROOT
from tests.support.policies.plain import First
from tests.support.sampled import sampled
from tests.support.taken_down import hosted, simulated

POLICIES = sorted({file.stem for file in (ROOT / "conf" / "policy").glob("*.yaml")} - {"replay"})


def cell(*overrides: str) -> Cell:
    return configure.cells(overrides)[0]


def differ(one: Cell) -> tuple[int, int]:
    """Decisions, and how many of them a host would not have made."""
    workload, log = simulated(one)
    answers = hosted(one, workload, log)
    return len(answers), sum(mine != theirs for mine, theirs in answers)


@pytest.mark.thorough
@pytest.mark.parametrize("policy", sampled(POLICIES, 20))
def test_a_host_decides_as_the_simulation_did(policy: str) -> None:
    """All but one are hosted: 39 of 40."""
    assert len(POLICIES) >= 35
    asked, wrong = differ(cell(f"policy={policy}", "workload=chats", "gpus=4", "rps=8", "duration_s=20"))
    print(f"{policy}: {asked} decisions, {wrong} differ")
    assert asked > 100
    assert wrong == 0


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["lor", "lmetric", "vllm_cache_aware", "aibrix_prefix_cache"])
def test_so_it_does_where_gpus_are_lost_and_come_back(policy: str) -> None:
    faults = ("faults=timeline", "faults.on_loss=retry")
    one = cell(f"policy={policy}", "workload=chats", "gpus=4", "rps=8", "duration_s=60", *faults)
    workload, log = simulated(one)
    assert any(entry.candidates is not None and len(entry.candidates) < 4 for entry in log)
    answers = hosted(one, workload, log)
    assert [mine for mine, _ in answers] == [theirs for _, theirs in answers]


@pytest.mark.nightly
def test_a_hundred_thousand_decisions_do_not_differ() -> None:
    one = cell("policy=lmetric", "workload=chats", "engine=vllm", "gpus=8", "rps=64", "duration_s=1570")
    asked, wrong = differ(one)
    print(f"{asked} decisions, {wrong} differ")
    assert asked >= 100_000
    assert wrong == 0


def test_what_cannot_be_hosted_says_why() -> None:
    one = cell("policy=lor", "rps=1", "gpus=1")
    replayed: Replay = object.__new__(Replay)
    with pytest.raises(
        InvalidInput, match="policy Replay cannot be hosted: it says where the requests of one run went"
    ):
        Host(replayed, [one.hardware])


class Told(First):
    """Sends requests where `answers` say."""

    answers: ClassVar[list[int]]

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return self.answers.pop()


def test_an_answer_that_is_none_of_the_gpus_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """−7 was told as 3."""
    host = Host(Told(), [cell("policy=lor", "rps=1", "gpus=1").hardware] * 3, rows=10, room=Room(40, 100, 4))
    host.candidates([0, 2])
    monkeypatch.setattr(Told, "answers", [2, 1, 3, -7, 1 << 70], raising=False)
    taken, valid = host.arrive([1], [16], 8, 0.0), "; it must be an integer from 0 to 2"
    for wrong, says in ((1 << 70, valid), (-7, valid), (3, valid), (1, ", which was no candidate then")):
        with pytest.raises(PrebleexpError, match=f"sent request 0 at 0 s to GPU {wrong}{says}"):
            host.decide(taken, 0.0)
    assert host.decide(taken, 0.0) == 2


def test_laps_go_on_and_the_book_stays_right() -> None:
    """Room for 10 requests, and 1,000 of them: each goes to the shortest queue, whatever lap its requests are of."""
    hardware = cell("policy=lor", "rps=1", "gpus=1").hardware
    host = Host(LeastOutstanding(), [hardware] * 3, rows=10, room=Room(40, 100, 4))
    flying, outstanding = [], [0, 0, 0]
    for i in range(1000):
        if not host.has_room(2):
            host.begin_lap()
        taken = host.arrive([1, 2], [16, 20], 8, i / 10)
        gpu = host.decide(taken, i / 10)
        assert outstanding[gpu] == min(outstanding)
        outstanding[gpu] += 1
        flying.append((taken, gpu))
        if i % 3 or i % 50 == 0:
            taken, gpu = flying.pop(i % len(flying))
            host.hear(notices.FINISHED, taken, gpu, i / 10, ttft_s=0.1, latency_s=0.2, output=3)
            outstanding[gpu] -= 1
        assert host.view.sent["outstanding"].tolist() == outstanding
    assert host.lap == 99
    assert host.view.sent["tokens"].sum() == 20 * len(flying)
