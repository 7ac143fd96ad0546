"""A router that runs for long: its memory stays as it is, and the end of a lap costs few hits."""

from __future__ import annotations

import gc
import heapq
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

from prebleexp.launch import configure
from prebleexp.live.host import Host
from prebleexp.live.router.deciding import Deciding
from prebleexp.live.router.prompts import Request
from prebleexp.live.router.recording import Recording, check

GPUS, GROUPS = 8, 200
SHARED, OWN = 6000, 2000
"""bytes of a prompt"""
SMALL = "hardware.kv_tokens=200000"
"""of a GPU, which is full after some hundred requests"""
ANSWER_S = 3.0


def resident() -> int:
    gc.collect()  # not of what other tests left: that is frozen
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


class Cache:
    """What a GPU really holds: what was used least recently goes."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._parts = OrderedDict[object, int]()

    def uses(self, part: object, tokens: int) -> int:
        """How many tokens of it were there."""
        found = self._parts.pop(part, 0)
        self._parts[part] = tokens
        self._left -= tokens - found
        while self._left < 0:
            self._left += self._parts.popitem(last=False)[1]
        return found


class Served:
    """What became of a stream whose prompts share their beginnings by groups: where each went, how much was cached
    there, and, if it `weighs`, the memory after each tenth. `forgets`: before each so many requests a policy that books
    prefills (`Prefills`) forgets what it has booked."""

    def __init__(
        self,
        policy: str,
        requests: int,
        rows: int,
        record: Path | None = None,
        weighs: bool = False,
        *settings: str,
        forgets: int = 0,
    ) -> None:
        if weighs:
            gc.freeze()
        (cell,) = configure.cells([f"policy={policy}", f"gpus={GPUS}", "rps=1", *settings])
        recorded = None if record is None else Recording(record, [f"policy={policy}"], GPUS)
        deciding = Deciding(cell.policy, [cell.hardware] * GPUS, 0, 1, rows, recorded)
        deciding.begin(range(GPUS))
        draw, self.gpus, self.memory = np.random.default_rng(0), np.zeros(requests, np.int8), list[int]()
        shared = [f"{i} ".ljust(SHARED, "x").encode() for i in range(GROUPS)]
        caches = [Cache(cell.hardware.kv_tokens) for _ in range(GPUS)]
        due: list[tuple[float, int, object]] = []
        hits = asked = 0
        for i in range(requests):
            now = i / (8 * GPUS)
            while due and due[0][0] <= now:
                at, _, ticket = heapq.heappop(due)
                deciding.finished(ticket, 40, at)  # type: ignore[arg-type]
            group = int((draw.zipf(1.2) - 1) % GROUPS)
            text = shared[group] + f"{i} ".ljust(OWN, "y").encode()
            if forgets and i % forgets == 0:
                for one in (deciding.host.routing.mine.queued, deciding.host.routing.mine.booked):
                    one[:] = 0
            ticket = deciding.arrives(Request(text, "m", 64, True, None, False), now)
            gpu = deciding.ask(ticket, now)
            self.gpus[i] = gpu
            caches[gpu].uses(("own", i), OWN // 4)
            hits += caches[gpu].uses(group, SHARED // 4)
            asked += (SHARED + OWN) // 4
            heapq.heappush(due, (now + ANSWER_S, i, ticket))
            if weighs and (i + 1) % (requests // 10) == 0:
                self.memory.append(resident())
        self.hit_rate = hits / asked
        self.laps = deciding.host.lap
        if recorded is not None:
            recorded.close()


pytestmark = pytest.mark.slow


def test_lor_decides_as_if_there_were_no_laps() -> None:
    one, other = Served("lor", 6_000, 300), Served("lor", 6_000, 9_000)
    assert (one.laps, other.laps) == (19, 0)
    assert (one.gpus == other.gpus).all()


@pytest.mark.parametrize(
    "requests", [10_000, pytest.param(100_000, marks=pytest.mark.nightly)], ids=["10,000", "100,000"]
)
def test_what_is_recorded_is_decided_alike(requests: int, tmp_path: Path) -> None:
    laps = Served("lmetric", requests, requests * 2 // 5, tmp_path / "recorded").laps
    (cell,) = configure.cells(["policy=lmetric", f"gpus={GPUS}", "rps=1"])
    found = check(tmp_path / "recorded", Host(cell.policy, [cell.hardware] * GPUS, rows=requests * 2 // 5))
    print(f"{found.decisions} decisions in {laps + 1} laps, {found.differ} differ")
    assert (found.decisions, found.differ, laps) == (requests, 0, 2)


@pytest.mark.parametrize(
    ("requests", "rows"),
    [(40_000, 2_000), pytest.param(10_000_000, 1 << 17, marks=pytest.mark.nightly)],
    ids=["40,000", "10 million"],
)
def test_memory_stays_as_it_is(requests: int, rows: int) -> None:
    found = Served("lmetric", requests, rows, None, True, SMALL)
    print(f"{found.laps} laps, MiB {[one >> 20 for one in found.memory]}")
    assert found.laps >= 19
    assert max(found.memory[5:]) < 1.05 * max(found.memory[:5])


def test_a_lap_forgets_what_waits_and_nothing_that_is_cached() -> None:
    """Caches are full here, so that GPUs drop much of what the policy was told of in an earlier lap."""
    one = Served("lmetric", 8_000, 2_000, None, False, SMALL)
    other = Served("lmetric", 8_000, 9_000, None, False, SMALL, forgets=2_000)
    assert (one.laps, other.laps) == (3, 0)
    assert (one.gpus == other.gpus).all()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("policy", "rows", "laps"),
    [("lmetric", 6_000, 10), ("marginal_delay", 6_000, 10), ("e2", 15_000, 3), ("vllm_cache_aware", 15_000, 3)],
)
def test_hits_are_as_without_laps(policy: str, rows: int, laps: int) -> None:
    """Also of those that decide by what they decided before, and have forgotten that. Without laps there is room for
    66,000 such prompts."""
    requests = (laps + 1) * rows
    found, endless = Served(policy, requests, rows), Served(policy, requests, requests)
    print(f"{policy}, {laps} laps of {rows:,}: hits {found.hit_rate:.4f}, without laps {endless.hit_rate:.4f}")
    assert (found.laps, endless.laps) == (laps, 0)
    assert abs(found.hit_rate - endless.hit_rate) < 0.01
