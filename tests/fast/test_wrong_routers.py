"""Recordings of routers tell their rules from others that look like them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from prebleexp.policies.aibrix.least_request import AIBrixLeastRequest
from prebleexp.policies.base import Policy
from prebleexp.policies.choices import least_outstanding, two_different
from prebleexp.policies.hashes import blake3_64, md5_64, of_prefixes, of_sessions, xxh64
from prebleexp.policies.kubeai.chwbl import KubeAICHWBL
from prebleexp.policies.kubeai.least_load import KubeAILeastLoad
from prebleexp.policies.loads import loads
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.policies.production_stack.session import ProductionStackSession
from prebleexp.policies.ring import UNBOUNDED, Bounded, OnRing, bound, clockwise, places, ring
from prebleexp.policies.sglang.consistent_hashing import SGLangConsistentHashing
from prebleexp.policies.sglang.manual import SGLangManual, assigned, keep
from prebleexp.policies.vllm.consistent_hash import VLLMConsistentHash
from prebleexp.policies.vllm.dplb import Client, VLLMDataParallel, count, hear, least_score
from prebleexp.policies.vllm.furc import furc
from prebleexp.policies.vllm.power_of_two import VLLMPowerOfTwo
from prebleexp.policies.vllm.sticky_least_loaded import Sticky, VLLMStickyLeastLoaded, forget, remember
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE, View
from prebleexp.sim.types import Setup
from tests.support.recordings.router_models import UNLIKELY, chwbl
from tests.support.recordings.routers import load, named, recordings, replay


@dataclass(frozen=True)
class FewerTokens(VLLMPowerOfTwo):
    """Of the two, the one with fewer prompt tokens."""

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        first, second = two_different(mine.draws, view)
        return second if view.sent[second].tokens < view.sent[first].tokens else first


@dataclass(frozen=True)
class EverySession(SGLangManual):
    """Counts sessions that have no unfinished requests too."""

    def finished(self, mine: Any, view: View, request: int, now: float) -> None:
        pass


@dataclass(frozen=True)
class Forgetful(SGLangManual):
    """Assigns every request of a session anew."""

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        gpu, session = assigned(mine, view), view.requests[request].session
        keep(mine.sessions[session], gpu)
        mine.unfinished[session, gpu] += 1
        return gpu


@dataclass(frozen=True)
class BareKey(VLLMConsistentHash):
    """Hashes a session's name alone."""

    def start(self, setup: Setup) -> OnRing:
        made = ring(setup, furc, "{}:{}", 160)
        return OnRing(made, places(made, of_sessions(self, setup, furc)))


@compiled
def stay(mine: Sticky, session: int, new: int, now: float) -> int:
    """A session stays where it is; if it is nowhere yet, it goes to `new`."""
    gpu = mine.sessions[session].gpu
    if gpu != NONE:
        forget(mine, session)
    else:
        gpu = new
    remember(mine, session, gpu, now)
    return gpu


@dataclass(frozen=True)
class FirstOfFewest(VLLMStickyLeastLoaded):
    """Of several GPUs with the fewest sessions the first, not the one of the highest hash."""

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return stay(mine, view.requests[request].session, np.argmin(mine.counts), now)


@dataclass(frozen=True)
class FewestRequests(VLLMStickyLeastLoaded):
    """A new session goes where the fewest requests are."""

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return stay(mine, view.requests[request].session, least_outstanding(view), now)


@dataclass(frozen=True)
class FixedStart(VLLMDataParallel):
    """Begins where it always does."""

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        hear(mine, view)
        best = least_score(mine, view, self.client_count)
        count(mine, best, self.client_count)
        return best


@dataclass(frozen=True)
class FourToOne(VLLMDataParallel):
    """The new start with the old score."""

    def start(self, setup: Setup) -> Client:
        return super().start(setup)._replace(new=0)

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        hear(mine, view)
        best = least_score(mine, view, self.client_count)
        count(mine, best, self.client_count)
        mine.start[0] += 1
        return best


@dataclass(frozen=True)
class Deaf(VLLMDataParallel):
    """Does not count what it has sent since a publication."""

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        hear(mine, view)
        best = least_score(mine, view, self.client_count)
        mine.start[0] += mine.new
        return best


@dataclass(frozen=True)
class ByOutstanding(ProductionStackSession):
    """Requests without a session go where the fewest are unfinished."""

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        if view.requests[request].session == NONE:
            return least_outstanding(view)
        return clockwise(mine.sessions.ring, mine.sessions.places[request], view, UNBOUNDED)


@dataclass(frozen=True)
class ToLeastLoaded(KubeAICHWBL):
    """What a GPU has no room for goes to the least loaded, not to the next on the ring."""

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        gpu = clockwise(mine.ring, mine.places[request], view, UNBOUNDED)
        if view.sent[gpu].outstanding <= bound(mine.loads, view, self.mean_load_percentage / 100):
            return gpu
        return least_outstanding(view)


@dataclass(frozen=True)
class Unbounded(KubeAICHWBL):
    """Whatever the load."""

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return clockwise(mine.ring, mine.places[request], view, UNBOUNDED)


@dataclass(frozen=True)
class WholePrompt(KubeAICHWBL):
    """Hashes all of the prompt."""

    def start(self, setup: Setup) -> Bounded:
        made = ring(setup, xxh64, "{}{}", self.replication)
        return Bounded(made, places(made, of_prefixes(setup, 1 << 30, xxh64)), loads(setup))


Settings = dict[str, Any]
WRONG: dict[str, tuple[str, Callable[[Settings], Policy]]] = {
    "own count, not what is reported": ("sglang_power_of_two", lambda _: VLLMPowerOfTwo()),  # 125 of 240
    "prompt tokens, not requests": ("vllm_power_of_two", lambda _: FewerTokens()),  # 30 of 120
    "a ring, where the release takes a remainder": (  # 208 of 320
        "sglang_consistent_hashing",
        lambda _: SGLangConsistentHashing(ring=True),
    ),
    "sessions without unfinished requests too": (
        "sglang_manual_min_group",
        lambda _: EverySession("min_group"),
    ),  # 69 of 250
    "fewest sessions, not requests": ("sglang_manual_min_load", lambda _: SGLangManual("min_group")),  # 22 of 200
    "every request of a session anew": ("sglang_manual", lambda settings: Forgetful(**settings)),  # 249 of 450
    "a session's name without its header's": ("vllm_consistent_hash", lambda _: BareKey()),  # 212 of 320
    "equals to the first": ("vllm_sticky", lambda _: FirstOfFewest()),  # 118 of 320
    "where the fewest requests are": ("vllm_sticky", lambda _: FewestRequests()),  # 142 of 320
    "a start that does not move on": ("vllm_dplb_new", lambda settings: FixedStart("new", **settings)),  # 110 of 550
    "a start that moves on": ("vllm_dplb_old", lambda settings: FourToOne("old", **settings)),  # 135 of 550
    "4 to 1 on the new score": ("vllm_dplb_new", lambda settings: FourToOne("new", **settings)),  # 352 of 550
    "the new score on the old one": (
        "vllm_dplb_old",
        lambda settings: VLLMDataParallel("new", **settings),
    ),  # 295 of 550
    "nothing added since a publication": ("vllm_dplb", lambda settings: Deaf("new", **settings)),  # 594 of 1100
    "requests without a session to the fewest unfinished": ("pstack_session", lambda _: ByOutstanding()),  # 38 of 320
    "arrivals of ten seconds": ("pstack_session", lambda _: ProductionStackSession(10.0)),  # 42 of 320
    "overflow to the least loaded": (
        "kubeai_prefixhash",
        lambda settings: chwbl(ToLeastLoaded, **settings),
    ),  # 327 of 1250
    "no bound": ("kubeai_prefixhash", lambda settings: chwbl(Unbounded, **settings)),  # 452 of 1250
    "the hash of the whole prompt": (
        "kubeai_prefixhash",
        lambda settings: chwbl(WholePrompt, **settings),
    ),  # 772 of 1250
    "half the points": (  # 368 of 1250
        "kubeai_prefixhash",
        lambda settings: chwbl(**settings | {"replication": settings["replication"] // 2}),
    ),
    "the first of the least loaded": ("aibrix_least_request", lambda _: LeastOutstanding()),  # 84 of 200
    "equals by a map's order": (
        "aibrix_least_request",
        lambda _: KubeAILeastLoad(),
    ),  # shares alone, 6.6 standard deviations off
    "equals alike, where a map's order decides": (
        "kubeai_leastload",
        lambda _: AIBrixLeastRequest(),
    ),  # shares alone, 8.2 standard deviations off
}
"""how the names of the recordings begin that it is tried on, and the wrong rule; its wrong decisions in all of them"""


@pytest.mark.parametrize("rule", WRONG)
@pytest.mark.slow
def test_a_wrong_rule_is_caught(rule: str) -> None:
    """By decisions that it cannot take, or by shares that its draws cannot have."""
    start, make = WRONG[rule]
    decisions, agree, unlikely = 0, 0, 0.0
    for path in recordings("routers"):
        if path.stem.startswith(start):
            recording = load(path)
            with named(recording):
                made = replay(recording, make(recording["settings"]))
            decisions, agree = decisions + made.decisions, agree + made.agree
            unlikely = max(unlikely, made.unlikely)
    print(f"{rule}: {decisions - agree} of {decisions} wrong, shares {unlikely:.1f} standard deviations off")
    assert decisions > 0
    assert agree < decisions or unlikely > UNLIKELY


def test_hashes_are_not_one_another() -> None:
    """A recording of one ring would not do for another."""
    made = [hashed(["worker-0:0", "worker-0:1"]).tolist() for hashed in (blake3_64, md5_64, xxh64, furc)]
    assert len({tuple(one) for one in made}) == 4
