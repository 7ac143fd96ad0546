"""A simulation's questions and notices, taken down in order, and put to a host."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from prebleexp.experiment.cell import Cell
from prebleexp.experiment.runs import draw, simulate_cell
from prebleexp.live.host import Host, Taken
from prebleexp.policies import keys
from prebleexp.policies.base import Policy
from prebleexp.sim import notices, records
from prebleexp.sim.types import Room, Workload

ROUTE = -1
OF_REQUESTS = ("first_token", "finished", "routed")
OF_CACHES = ("stored", "evicted", "copied", "dropped")
KINDS = {"first_token": notices.FIRST_TOKEN, "finished": notices.FINISHED, "routed": notices.ROUTED} | {
    "stored": notices.STORED,
    "evicted": notices.EVICTED,
    "copied": notices.COPIED,
    "dropped": notices.DROPPED,
}


class Entry(NamedTuple):
    kind: int
    """`ROUTE`, or a kind of notice"""
    request: int
    now: float
    gpu: int
    """the answer, or whose notice it is"""
    tokens: int
    row: Any
    """of the request, as the router saw it"""
    reports: Any
    """of all GPUs, if it is a question"""
    candidates: Any


def taken_down(policy: Policy, log: list[Entry]) -> Policy:
    """The same policy, in plain Python, that writes down all that it is asked and told."""
    kind = type(policy)

    def route(self: Any, mine: Any, view: Any, request: int, now: float) -> int:
        row, reports = np.array(view.requests[request]), np.array(view.gpus)
        answer = int(kind.route(policy, mine, view, request, now))
        log.append(Entry(ROUTE, request, now, answer, 0, row, reports, np.array(view.candidates)))
        return answer

    def of_requests(name: str) -> Any:
        def told(self: Any, mine: Any, view: Any, request: int, now: float) -> None:
            row = np.array(view.requests[request])
            log.append(Entry(KINDS[name], request, now, int(row["gpu"]), 0, row, None, None))
            getattr(kind, name)(policy, mine, view, request, now)

        return told

    def of_caches(name: str) -> Any:
        def told(self: Any, mine: Any, view: Any, request: int, gpu: int, tokens: int, now: float) -> None:
            log.append(Entry(KINDS[name], request, now, int(gpu), int(tokens), None, None, None))
            getattr(kind, name)(policy, mine, view, request, gpu, tokens, now)

        return told

    def changed(self: Any, mine: Any, view: Any, gpu: int, now: float) -> None:
        log.append(Entry(notices.CHANGED, records.NONE, now, int(gpu), 0, None, None, np.array(view.candidates)))
        kind.changed(policy, mine, view, gpu, now)  # type: ignore[attr-defined]

    def finished(self: Any, mine: Any, view: Any, request: int, now: float) -> None:
        row = np.array(view.requests[request])
        log.append(Entry(notices.FINISHED, request, now, int(row["gpu"]), 0, row, None, None))
        if hasattr(kind, "finished"):
            kind.finished(policy, mine, view, request, now)

    body: dict[str, Any] = {"route": route, "finished": finished, "compiled": False}  # the book needs all ends
    body |= {name: of_requests(name) for name in ("first_token", "routed") if hasattr(kind, name)}
    body |= {name: of_caches(name) for name in OF_CACHES if hasattr(kind, name)}
    body |= {"changed": changed} if hasattr(kind, "changed") else {}
    if hasattr(kind, "lacks_room"):
        body["lacks_room"] = lambda self, mine, view, request: kind.lacks_room(policy, mine, view, request)
    made: Policy = object.__new__(type("TakenDown", (kind,), body))
    vars(made).update(vars(policy))
    return made


@dataclasses.dataclass(frozen=True)
class Named:
    """What a simulated request calls itself."""

    workload: Workload
    request: int
    ends: Any

    @property
    def number(self) -> int:
        return int(self.workload.session[self.request])

    @property
    def session(self) -> str | None:
        return keys.session(self.number) if self.number >= 0 else None

    def prefix(self, tokens: int) -> str:
        """See `policies.hashes.of_prefixes`."""
        length = min(tokens, int(self.ends[-1]))
        at = int(self.workload.segment_offsets[self.request] + np.searchsorted(self.ends, length))
        return keys.prefix(int(self.workload.segment_ids[at]), length)


def simulated(cell: Cell) -> tuple[Workload, list[Entry]]:
    """All that the cell's router was asked and told."""
    log: list[Entry] = []
    workload = draw(cell)
    simulate_cell(dataclasses.replace(cell, policy=taken_down(cell.policy, log)), workload)
    return workload, log


def hosted(cell: Cell, workload: Workload, log: Sequence[Entry]) -> list[tuple[int, int]]:
    """What a host answers to the same questions, beside what the simulation's router did."""
    ids = 1 + int(max(workload.segment_ids.max(), workload.answer_segment.max()))
    sessions = max(1, 1 + int(workload.session.max()))
    room = Room(len(workload.segment_ids), ids, sessions)
    hardware = [one.hardware for one in cell.cluster.groups for _ in range(one.replicas)] or [cell.hardware] * cell.gpus
    host = Host(cell.policy, hardware, cell.seed, len(workload), room)
    offsets, ends = workload.segment_offsets, np.cumsum(workload.segment_tokens, dtype=np.int64)
    taken: dict[int, Taken] = {}
    answers = []
    for one in log:
        if one.kind == ROUTE:
            if one.candidates.tolist() != host.view.candidates.tolist():
                host.candidates(one.candidates)
            host.view.gpus[:] = one.reports
            if one.request not in taken:
                a, b = offsets[one.request], offsets[one.request + 1]
                own = (ends[a:b] - (ends[a - 1] if a else 0)).astype(np.int32)
                taken[one.request] = host.arrive(
                    workload.segment_ids[a:b],
                    own,
                    int(one.row["max_new_tokens"]),
                    float(one.row["arrival_s"]),
                    answer=int(one.row["answer_segment"]),
                    session=int(one.row["session"]),
                    names=Named(workload, one.request, own),
                )
            row = host.view.requests[taken[one.request].row]
            for name in one.row.dtype.names:
                if name not in ("first_segment", "segments"):
                    row[name] = one.row[name]
            answers.append((host.decide(taken[one.request], one.now), one.gpu))
        elif one.kind == notices.CHANGED:
            host.changed(one.gpu, one.candidates, one.now)
        else:
            more = {}
            if one.row is not None:
                names = {"ttft_s": "ttft_s", "latency_s": "latency_s", "output": "output_seen"}
                more = {name: one.row[field].item() for name, field in names.items()}
            host.hear(one.kind, taken[one.request], one.gpu, one.now, tokens=one.tokens, **more)
    return answers
