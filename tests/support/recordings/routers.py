"""Recordings of real routers, and how a policy is asked and told what they were.

A recording says, event for event, what a router was told and where it sent each request. `Driven` puts a policy, as it
is compiled for a run, into the place of the router: it hears the same, decides, and then takes the recorded decision
for its own. Where it draws, it is asked again with other draws until it decides as was recorded.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from numba import njit

from prebleexp.policies import keys
from prebleexp.sim import addresses, notices
from prebleexp.sim import records as of
from prebleexp.sim.compiled import INTERPRETED
from prebleexp.sim.draws import generator
from prebleexp.sim.handles import Block
from prebleexp.sim.plug import call_int, call_none
from prebleexp.sim.routing import Routing
from prebleexp.sim.types import Setup, Workload
from prebleexp.sim.world import made_cache, made_view, records
from tests.support.places import ROOT
from tests.support.recordings.shares import Shares

Path_ = Sequence[tuple[int, int]]
"""a prompt: (segment, tokens), two of which share the tokens of their equal leading segments"""

ALL_OF_IT = 10**12
"""tokens of KV memory, so that any share of it can be told"""
SAMPLE = 24
"""other draws, for what share of them each worker gets"""
TRIES = 400
"""other draws, before a decision counts as impossible"""


def recordings(folder: str) -> list[Path]:
    """All of the folder named in PREBLEEXP_…_FIDELITY, or beside the checkout; else the few that are committed."""
    named = {"routers": "PREBLEEXP_ROUTER_FIDELITY", "routers_b": "PREBLEEXP_ROUTER_B_FIDELITY"}[folder]
    beside = Path(os.environ.get(named, ROOT.parent / "shared" / "fidelity" / folder))
    return sorted(beside.glob("*.json")) or sorted((ROOT / "tests/data/fidelity" / folder).glob("*.json"))


def load(path: Path) -> dict[str, Any]:
    recording: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return recording


def segments_of(prompts: Sequence[Path_]) -> dict[tuple[tuple[int, int], ...], int]:
    """All paths, numbered."""
    paths = dict.fromkeys(tuple(path[: i + 1]) for path in prompts for i in range(len(path)))
    return {path: number for number, path in enumerate(paths)}


def workload_of(
    prompts: Sequence[Path_], arrival_s: npt.ArrayLike | None = None, sessions: Sequence[int] | None = None
) -> Workload:
    """A stream of these prompts; every distinct path is a segment."""
    ids = segments_of(prompts)
    rows = [[ids[tuple(path[: i + 1])] for i in range(len(path))] for path in prompts]
    n, tokens = len(prompts), [[size for _, size in path] for path in prompts]
    return Workload(
        arrival_s=np.zeros(n) if arrival_s is None else np.asarray(arrival_s, float),
        prompt_tokens=np.array([sum(row) for row in tokens]),
        output_tokens=np.ones(n),
        max_new_tokens=np.ones(n),
        prefix_group=np.full(n, -1),
        segment_offsets=np.concatenate([[0], np.cumsum([len(row) for row in rows])]),
        segment_ids=np.concatenate([np.array(row, int) for row in rows]),
        segment_tokens=np.concatenate([np.array(row, int) for row in tokens]),
        session=None if sessions is None else np.array(sessions),  # type: ignore[arg-type]
    )


def common(one: Path_, other: Path_) -> int:
    """Leading tokens that two prompts share."""
    shared = 0
    for mine, others in zip(one, other, strict=False):
        if mine != others:
            break
        shared += mine[1]
    return shared


class Driven:
    """A policy in the place of a router."""

    def __init__(self, policy: Any, workload: Workload, gpus: int, **more: Any) -> None:
        setup = Setup(gpus, 0, len(workload), ALL_OF_IT, 32_768, workload, **more)
        cache = made_cache(setup, 8)
        made = made_view(cache.requests, cache.prompts, records(gpus, of.REPORT), records(gpus, addresses.COST))
        self.view, self.routing, self._draws = Block(made), Routing(policy, setup, check=False), 0
        self.gpus, self.requests = made.gpus, made.requests
        """what it sees: to be written to"""
        self.gpus.kv_tokens = self.gpus.kv_free = ALL_OF_IT
        self.sent = made.sent
        self._look()

    def offers(self, gpus: npt.ArrayLike) -> None:
        """From now on these are its candidates, ascending."""
        self.view.replace(self.view.value._replace(candidates=np.array(gpus)))

    # ---------------------------------------------------------------- deciding
    def decide(self, request: int, now: float) -> int:
        """Where it sends the request, with all that it remembers of that."""
        self._make_room(request)
        return ask(self.routing.record.route, self.routing.record.own, self.view.handle, request, now)

    def _make_room(self, request: int) -> None:
        if self.routing.record.lacks_room:
            while call(self.routing.record.lacks_room, self.routing.record.own, self.view.handle, request):
                self.routing.with_more_room(self.view, request)
                self._look()

    def answers(self, request: int, now: float, count: int) -> npt.NDArray[np.int64]:
        """What it decides with other draws; nothing of it is remembered."""
        self._make_room(request)
        self.keep()
        found = np.zeros(count, np.int64)
        for one in range(count):
            draws = self._to_draw()
            found[one:] = self.decide(request, now)
            certain = np.array_equal(draws, self._to_draw())
            self.restore()
            if certain:
                break
        return found

    def _to_draw(self) -> npt.NDArray[Any]:
        return np.array(getattr(self.mine, "draws", ()))

    def may_decide(self, request: int, now: float, gpu: int) -> bool:
        """Whether it sends the request to this GPU, with some draws; if so it has."""
        self._make_room(request)
        if not hasattr(self.mine, "draws"):
            return self.decide(request, now) == gpu
        self.keep()
        for _ in range(TRIES):
            draws = self._to_draw()
            if self.decide(request, now) == gpu:
                return True
            certain = np.array_equal(draws, self._to_draw())
            self.restore()
            if certain:
                break
        return False

    def must_decide(self, request: int, now: float, gpu: int) -> None:
        """It sends the request to this GPU, since there is no other."""
        every = self.view.candidates
        self.offers([gpu])
        self.decide(request, now)
        self.offers(every)

    def sends(self, request: int, gpu: int) -> None:
        """The router's own book."""
        sent = self.sent[gpu]
        self.requests[request].gpu = gpu
        sent.outstanding += 1
        sent.tokens += self.requests[request].prompt_tokens
        sent.requests += 1

    # ---------------------------------------------------------------- hearing
    def first_token(self, request: int, now: float) -> None:
        self._tell(notices.FIRST_TOKEN, request, now)

    def finished(self, request: int, now: float) -> None:
        sent = self.sent[self.requests[request].gpu]
        sent.outstanding -= 1
        sent.tokens -= self.requests[request].prompt_tokens
        self._tell(notices.FINISHED, request, now)

    def changed(self, gpu: int, now: float) -> None:
        self._tell(notices.CHANGED, gpu, now)

    def stored(self, request: int, gpu: int, tokens: int, now: float) -> None:
        self._tell(notices.STORED, request, gpu, tokens, now)

    def evicted(self, request: int, gpu: int, tokens: int, now: float) -> None:
        self._tell(notices.EVICTED, request, gpu, tokens, now)

    def _tell(self, kind: int, *arguments: Any) -> None:
        address = self.routing.record.hears[kind]
        if address:
            tell = {2: tell_two, 4: tell_four}[len(arguments)]
            tell(address, self.routing.record.own, self.view.handle, *arguments)

    # ---------------------------------------------------------------- what it remembers
    def _look(self) -> None:
        self.mine = self.routing.mine
        self._kept = [(array, array.copy()) for array in arrays(self.mine)]

    def keep(self) -> None:
        """All as it is, until the next time."""
        for array, kept in self._kept:
            kept[...] = array

    def restore(self) -> None:
        """All as it was kept, but for what it draws next."""
        for array, kept in self._kept:
            array[...] = kept
        if hasattr(self.mine, "draws"):
            self._draws += 1
            self.mine.draws[:] = generator(self._draws)


def arrays(value: Any) -> Iterator[npt.NDArray[Any]]:
    """All arrays and records that a policy remembers."""
    value = getattr(value, "value", value)
    if hasattr(value, "_fields"):
        for one in value:
            yield from arrays(one)
    elif isinstance(value, np.ndarray | np.void):
        yield np.asarray(value)


def _ask(function: Any, own: Any, view: Any, request: int, now: float) -> int:
    return int(call_int(function, own, view, request, now))


def _call(function: Any, own: Any, view: Any, request: int) -> int:
    return int(call_int(function, own, view, request))


def _tell_two(function: Any, own: Any, view: Any, request: int, now: float) -> None:
    call_none(function, own, view, request, now)


def _tell_four(function: Any, own: Any, view: Any, request: int, gpu: int, tokens: int, now: float) -> None:
    call_none(function, own, view, request, gpu, tokens, now)


ask, call, tell_two, tell_four = (one if INTERPRETED else njit(one) for one in (_ask, _call, _tell_two, _tell_four))


# ---------------------------------------------------------------- recordings of spec/routers/sglang-vllm-aibrix.md
class Agreement(NamedTuple):
    """What became of a recording's decisions."""

    decisions: int
    agree: int
    """that the policy may take"""
    drawn: int
    """that it may also take otherwise"""
    first: tuple[int, int, int] | None
    """(request, recorded, ours) where it first decides otherwise"""
    unlikely: float
    """by how many standard deviations a worker's share of the drawn decisions differs from what is drawn here"""


def replay(recording: dict[str, Any], policy: Any, bytes_of: bool = False) -> Agreement:
    """A token stands for a character, or for a byte of UTF-8. The names of workers, sessions and prefixes are the
    recording's where `named` says so."""
    events, decisions = recording["events"], recording["decisions"]
    arrivals = [event for event in events if "arrive" in event]
    prompts = prompts_of(recording, bytes_of)
    used = list(dict.fromkeys(event["key"] for event in arrivals if "key" in event))
    sessions = [used.index(event["key"]) if "key" in event else -1 for event in arrivals]
    driven = Driven(policy, workload_of(prompts, sessions=sessions if used else None), recording["workers"])
    interval, passes, now = recording.get("eviction_interval_secs", 0), 0, 0.0
    agree, drawn, first, shares = 0, 0, None, Shares(recording["workers"])
    for number, event in enumerate(events):
        now = event.get("t", passes * interval + 1e-6 * number)
        if "arrive" in event:
            request, gpu = event["arrive"], decisions[event["arrive"]]
            tried = driven.answers(request, now, SAMPLE) if hasattr(driven.mine, "draws") else None
            if tried is not None and len(set(tried)) > 1:
                drawn += 1
                shares.add(tried, gpu)
            if driven.may_decide(request, now, gpu):
                agree += 1
            else:
                first = first or (request, gpu, int(driven.answers(request, now, 1)[0]))
                driven.must_decide(request, now, gpu)
            driven.sends(request, gpu)
        elif "finish" in event:
            driven.finished(event["finish"], now)
        elif "evict" in event:
            passes += 1
        elif "loads" in event:
            driven.gpus.kv_free = ALL_OF_IT - np.array(event["loads"])
        elif "counts" in event:
            for gpu, (waiting, running, *use) in enumerate(event["counts"]):
                driven.gpus[gpu].queued, driven.gpus[gpu].running = waiting, running
                driven.gpus[gpu].kv_free = round(ALL_OF_IT * (1 - (use or [0.0])[0]))
    return Agreement(len(decisions), agree, drawn, first, shares.most_unlikely())


def prompts_of(recording: dict[str, Any], bytes_of: bool = False) -> list[Path_]:
    sizes = recording["text"]["segments"]
    wide = bytes_of and not recording["text"]["ascii"]
    parts = [parts_of(one, size, wide) if size else [] for one, size in enumerate(sizes)]
    arrivals = (event for event in recording["events"] if "arrive" in event)
    return [[part for one in event["prompt"] for part in parts[one]] for event in arrivals]


def parts_of(number: int, characters: int, wide: bool) -> list[tuple[int, int]]:
    """A segment of a recording. `wide`: it is named by a character of two bytes, the first of which others share."""
    lead = -1 - ((256 + number) >> 6)
    return [(lead, 1), (number, characters)] if wide else [(number, characters)]


def text_of(recording: dict[str, Any], segment: int) -> str:
    """As the recordings' README says."""
    seed, size = recording["text"]["seed"], recording["text"]["segments"][segment]
    letters = [NAMING[segment % 92] if recording["text"]["ascii"] else chr(256 + segment)]
    x = (1000003 * seed + 7919 * segment + 12345) % 2**64
    for _ in range(size - 1):
        x = (x * 6364136223846793005 + 1442695040888963407) % 2**64
        letters.append(LETTERS[(x >> 33) & 31])
    return "".join(letters)


NAMING = "".join(chr(one) for one in range(ord("!"), ord("~") + 1) if chr(one) not in '"\\')
LETTERS = "abcdefghijklmnopqrstuvwxyz" + 6 * " "


@contextmanager
def named(recording: dict[str, Any]) -> Iterator[None]:
    """Workers, sessions and prefixes are called as they are in the recording."""

    def whole(path: Path_) -> str:
        return "".join(text_of(recording, segment) for segment, _ in path)

    used = list(dict.fromkeys(event["key"] for event in recording["events"] if "key" in event))
    paths = list(segments_of(prompts_of(recording)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "prefix", lambda segment, tokens: whole(paths[segment])[:tokens])
        if "worker_urls" in recording:
            patch.setattr(keys, "worker", recording["worker_urls"].__getitem__)
        if used:
            patch.setattr(keys, "session", used.__getitem__)
        yield
