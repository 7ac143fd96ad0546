"""Which features of a run are not modelled together, and why: the one table of it.

Whoever lets a pair go together takes its row away; tests count the rows that are left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from prebleexp.errors import InvalidInput

if TYPE_CHECKING:
    from prebleexp.sim.given import Given

PULL, RESERVE_FIRST, PUSH_AT_END = PROTOCOLS = ("pull", "reserve_first", "push_at_end")
"""of roles, how KV goes from one GPU to another (spec: clusters.md, section 1.1); a run has one of them at most. pull:
who makes the output is chosen when the prompt is computed, and reads it. reserve_first: both are chosen at arrival, and
the prompt is computed, and sent, when there is room for it where the output is made. push_at_end: both are chosen at
arrival, and it is sent when it is computed"""
ROLES = (*PROTOCOLS, "decider")
CAUSES = {
    "room": "engines that reserve room first have no tiers, no moves and no decider",
    "lockstep": "ranks that step together come and go together",
    "pipeline": "KV that moves is followed through two steps under way, not through more",
}


class Refusal(NamedTuple):
    """Features that are not modelled at once: any of `one` beside any of `other`; where `third` is not empty, beside
    one of these too."""

    one: tuple[str, ...]
    other: tuple[str, ...]
    cause: str
    """of `CAUSES`"""
    clause: str
    """what a run has of `other`, or of the third, as a sentence begins …"""
    beside: str
    """… and of `one`, as it goes on"""
    third: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        return f"{self.clause}, and {self.beside}; only one of the two is modelled at once"

    def is_of(self, there: Iterable[str]) -> bool:
        """Whether it refuses a run with these features."""
        return all(self.between(there))

    def between(self, there: Iterable[str]) -> list[str]:
        """Of each side the first feature that is there; "" where there is none."""
        has = {*there}
        sides = (self.one, self.other, self.third) if self.third else (self.one, self.other)
        return [next((name for name in side if name in has), "") for side in sides]


WORDS = {
    PULL: "roles: who makes the output is chosen when the prompt is computed, and reads it (`cluster.protocol=pull`)",
    RESERVE_FIRST: "roles: both GPUs are chosen at arrival, room is reserved first (`cluster.protocol=reserve_first`)",
    PUSH_AT_END: "roles: both GPUs are chosen at arrival, and KV is pushed (`cluster.protocol=push_at_end`)",
    "decider": "roles of which some prompts need no GPU for prompts (`cluster.decider=`)",
    "tiers": "KV in host memory, on disk or in a shared store (`cluster=tiered`)",
    "peers": "KV that GPUs lend each other (`cluster.peers.gb_s=`)",
    "migration": "requests that move while they run (`cluster=migrating`)",
    "autoscaler": "a number of GPUs that follows the load (`autoscaler=`)",
    "faults": "GPUs that are lost, drained or slow (`faults=`)",
    "resume": "requests that go on after a loss where they were (`faults.on_loss=resume`)",
    "requeue": "GPUs that give back what waits when they are drained (`faults.drain=requeue`)",
    "kinds": "GPUs of several kinds (`cluster.groups=`)",
    "gateway": "limits and a queue before the router (`gateway=`)",
    "patience": "requests that give up when nothing has come for so long (`patience_s`)",
    "replicas": "several router processes (`gateway.replicas=`)",
    "ranks": "data-parallel ranks that step together (`hardware.data_parallel_size=`)",
    "stages": "pipelines of several stages (`hardware.pipeline_parallel_size=`)",
    "serial": "decisions that take the router's time, one after the other (`overhead=serial`)",
}
"""features, for people"""


def _protocol(given: Given) -> str | None:
    return None if given.pools is None else PROTOCOLS[given.pools.protocol]


def _decides(given: Given) -> bool:
    from prebleexp.sim.pools import ALWAYS  # numba: whoever checks a configuration needs none

    return given.pools is not None and given.pools.decider != ALWAYS


FEATURES: Mapping[str, Callable[[Given], bool]] = {
    PULL: lambda given: _protocol(given) == PULL,
    RESERVE_FIRST: lambda given: _protocol(given) == RESERVE_FIRST,
    PUSH_AT_END: lambda given: _protocol(given) == PUSH_AT_END,
    "decider": _decides,
    "tiers": lambda given: given.tiers is not None,
    "peers": lambda given: given.tiers is not None and given.tiers.peers is not None,
    "migration": lambda given: given.migration is not None,
    "autoscaler": lambda given: given.autoscaler is not None,
    "faults": lambda given: len(given.timeline) > 0 or given.autoscaler is not None,
    "resume": lambda given: FEATURES["faults"](given) and given.resumes,
    "requeue": lambda given: FEATURES["faults"](given) and given.terms.requeue,
    "kinds": lambda given: len(given.kinds) > 1,
    "gateway": lambda given: given.gateway is not None,
    "patience": lambda given: given.impatient,
    "replicas": lambda given: given.replicas is not None,
    "ranks": lambda given: any(of.ranks > 1 for _, of in given.kinds),
    "stages": lambda given: any(of.stages > 1 for _, of in given.kinds),
    "serial": lambda given: given.overhead.mode == "serial",
}
"""by name, whether a run has it"""

_SPLIT, _FAULTS = "GPUs have roles", "GPUs have faults"
_RESERVED = "room is reserved before prompts are computed"
_SCALED = "an autoscaler says how many GPUs there are"
REFUSED = (
    Refusal((RESERVE_FIRST,), ("decider",), "room", "some prompts are computed where outputs are made", _RESERVED),
    Refusal((RESERVE_FIRST,), ("tiers", "peers"), "room", "there are tiers", _RESERVED),
    Refusal((RESERVE_FIRST,), ("migration",), "room", "requests are moved", _RESERVED),
    Refusal(("stages",), ROLES, "pipeline", _SPLIT, "steps go through stages"),
    Refusal(("stages",), ("tiers", "peers"), "pipeline", "there are tiers", "steps go through stages"),
    Refusal(("stages",), ("migration",), "pipeline", "requests are moved", "steps go through stages"),
    Refusal(("ranks",), ("autoscaler",), "lockstep", _SCALED, "ranks step together"),
    Refusal(("ranks",), ("faults", "resume", "requeue"), "lockstep", _FAULTS, "ranks step together"),
)


def pairs() -> Iterator[tuple[str, str]]:
    """Those of features that a run could have: two protocols are not."""
    for one, other in combinations(FEATURES, 2):
        if one not in PROTOCOLS or other not in PROTOCOLS:
            yield one, other


def refused_pairs() -> list[tuple[str, str, Refusal]]:
    """With the first reason that a run would be given."""
    found = ((one, other, refusal_of((one, other))) for one, other in pairs())
    return [(one, other, refusal) for one, other, refusal in found if refusal is not None]


def refused_triples() -> list[tuple[str, str, str, Refusal]]:
    """Of which each pair goes together."""
    fine = {frozenset(pair) for pair in pairs() if refusal_of(pair) is None}
    found = []
    for triple in combinations(FEATURES, 3):
        if all(frozenset(pair) in fine for pair in combinations(triple, 2)):
            refusal = refusal_of(triple)
            if refusal is not None:
                found.append((*triple, refusal))
    return found


def refusal_of(there: Iterable[str]) -> Refusal | None:
    """The first row that refuses a run with these features."""
    has = {*there}
    return next((one for one in REFUSED if one.is_of(has)), None) if len(has) > 1 else None


def refuse(given: Given) -> None:
    """Raises InvalidInput for features that are not modelled at once."""
    refusal = refusal_of(name for name, is_there in FEATURES.items() if is_there(given))
    if refusal is not None:
        raise InvalidInput(refusal.sentence)
