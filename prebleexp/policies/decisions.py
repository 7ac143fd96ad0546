"""What decisions were made by, as a policy has kept it, and how that is had of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, NamedTuple


class Decisions(NamedTuple):
    """The terms of what was compared: of the GPU that was chosen, and of the best of the others."""

    terms: tuple[str, ...]
    """their names: they add up to what was compared, of which the least wins"""
    own: tuple[str, ...]
    """those that are about the request itself; the others are about others"""
    rows: Any
    """(requests,) records: `asked` (how often: 0 if never), and of the last time `at_s`, `gpu`, `next_gpu` (-1: there
    was no other), `chosen` and `next`, the terms of both"""


class Decision(NamedTuple):
    """A request's last decision, and the reasons for it."""

    request: int
    at_s: float
    gpu: int
    terms: dict[str, float]
    next_gpu: int | None
    next_terms: dict[str, float]
    own: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """ "request 17 was sent to GPU 3 at 1.25 s: its own delay 0.12, others' 0.05; next best GPU 1, 0.21" """
        own, others = _parts(self.terms, self.own)
        text = f"request {self.request} was sent to GPU {self.gpu} at {self.at_s:.3f} s: "
        text += f"its own delay {own:.3g}, others' {others:.3g}"
        if self.next_gpu is None:
            return f"{text}; there was no other"
        own, others = _parts(self.next_terms, self.own)
        return f"{text}; next best GPU {self.next_gpu}: {own:.3g} and {others:.3g}, {own + others:.3g} together"


def _parts(terms: dict[str, float], own: tuple[str, ...]) -> tuple[float, float]:
    mine = sum(terms[name] for name in own)
    return mine, sum(terms.values()) - mine


def watched(policy: Any) -> tuple[Any, Callable[[], Iterator[Decision]]]:
    """The policy, which decides as it does, and what gives its decisions once it has run, in order of requests. Of
    several routers that were asked about a request the last one counts."""
    kind, kept = type(policy), list[Any]()

    def start(self: Any, setup: Any) -> Any:
        kept.append(kind.start(self, setup))
        return kept[-1]

    other: Any = type(kind.__name__, (kind,), {"start": start, "__module__": kind.__module__})
    made = other(**{one.name: getattr(policy, one.name) for one in fields(kind)})
    return made, lambda: _all([found for mine in kept if (found := policy.explained(mine)) is not None])


def _all(routers: list[Decisions]) -> Iterator[Decision]:
    for request in range(len(routers[0].rows) if routers else 0):
        asked = [(one, row) for one in routers if (row := one.rows[request]).asked]
        if asked:
            of, row = max(asked, key=lambda one: one[1].at_s)
            chosen, others = (dict(zip(of.terms, terms.tolist(), strict=True)) for terms in (row.chosen, row.next))
            next_gpu = int(row.next_gpu)
            if next_gpu < 0:
                yield Decision(request, float(row.at_s), int(row.gpu), chosen, None, {}, of.own)
            else:
                yield Decision(request, float(row.at_s), int(row.gpu), chosen, next_gpu, others, of.own)
