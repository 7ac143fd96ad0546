"""llm-d and BLIS decide as the real ones did, decision for decision, in every recording of ../shared/fidelity/routers_b
that is theirs: the same score of every worker, the same blocks found, the same worker, or one of equals where the real
one draws. So that this means something, rules that are nearly right are caught.

All of the folder named in PREBLEEXP_ROUTER_B_FIDELITY (default: ../shared/fidelity/routers_b beside the checkout) if
there is one, else the few that are committed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

from prebleexp.policies.blis.least_loaded import BlisLeastLoaded
from prebleexp.policies.blis.weighted import BlisWeighted
from prebleexp.policies.llmd import scorers
from prebleexp.policies.llmd.block_index import counted, leading
from prebleexp.policies.llmd.picker import LlmD, pick, prompt_of, send
from prebleexp.policies.llmd.scorers import add_up
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.sim.records import View
from prebleexp.sim.types import Setup
from tests.support.recordings.routers import ALL_OF_IT, SAMPLE, Driven, load, recordings, workload_of
from tests.support.recordings.shares import Shares

pytestmark = pytest.mark.uncompiled

OURS = [path for path in recordings("routers_b") if path.stem.startswith(("llmd_", "blis_"))]
UNLIKELY = 4.5
"""standard deviations"""


# ---------------------------------------------------------------- the recordings
class Small(LlmD):
    """Recorded with smaller blocks than users may have."""

    least_block: ClassVar[int] = 1


def policy_of(settings: dict[str, Any], kind: type[Any] | None = None) -> Any:
    pairs = (one.split(":") for one in settings["scorers"].split(",") if one)
    weights = {name: float(weight) for name, weight in pairs}
    if settings["router"] == "llmd":
        sizes = {"max_prefix_blocks": settings["max_blocks"], "lru_capacity": settings["lru"]}
        return (kind or Small)(weights, block_size=settings["block_size"], **sizes)
    if settings["router"] == "blis_weighted":
        return (kind or BlisWeighted)(weights, settings["block_size"])
    return (kind or BlisLeastLoaded)()


class Agreement(NamedTuple):
    decisions: int
    agree: int
    """of them: the worker, …"""
    scores: int
    """… what each worker scored, …"""
    matches: int
    """… and how many blocks were found on each"""
    unlikely: float
    """by how many standard deviations a worker's share of the drawn decisions differs from what is drawn here"""

    @property
    def all_of_it(self) -> bool:
        return self.decisions == self.agree == self.scores == self.matches


def replay(recording: dict[str, Any], policy: Any) -> Agreement:
    settings, events = recording["settings"], recording["events"]
    size, gpus = settings["block_size"], settings["workers"]
    prompts = [long_enough(recording["contexts"][event["c"]], event, settings) for event in events]
    driven = Driven(policy, workload_of(prompts), gpus)
    shares, agree, scored, matched = Shares(gpus), 0, 0, 0
    for request, event in enumerate(events):
        driven.gpus.queued, driven.gpus.running = event["queue"], event["batch"]
        driven.gpus.kv_free = [round(ALL_OF_IT * (1 - use)) for use in event["kv"]]
        driven.sent.outstanding = event["inflight"]
        if "tokens" in event:  # those of the request itself were not among them
            tokens, blocks = driven.requests[request].prompt_tokens, event["blocks"]
            own = (blocks - np.array(event["matches"])) * size + max(0, tokens - blocks * size)
            driven.mine.scores.tokens[:] = event["tokens"] - own
        for gpu, blocks in enumerate(event.get("cached", ())):
            driven.stored(request, gpu, blocks * size, 0.0)
        if hasattr(driven.mine, "draws"):
            tried = driven.answers(request, 0.0, SAMPLE)
            if len(set(tried)) > 1:
                shares.add(tried, event["worker"])
        if driven.may_decide(request, 0.0, event["worker"]):
            agree += 1
        else:
            driven.decide(request, 0.0)
        if event["scores"] is not None:
            scored += bool(np.abs(driven.mine.scores.total - event["scores"]).max() < 1e-12)
        matched += "matches" not in event or driven.mine.scores.held.tolist() == event["matches"]
        for gpu in range(gpus):
            driven.evicted(request, gpu, 0, 0.0)
    scored = scored if events[0]["scores"] is not None else len(events)
    return Agreement(len(events), agree, scored, matched, shares.most_unlikely())


def long_enough(path: list[list[int]], event: dict[str, Any], settings: dict[str, Any]) -> list[tuple[int, int]]:
    """The workers were said to have more of some prompts than there is: where it matters, the prompt has a tail."""
    prompt = [(segment, tokens) for segment, tokens in path]
    if "precise" in settings["scorers"]:
        assert "affinity" not in settings["scorers"]
        lacking = max(event["cached"]) * settings["block_size"] - sum(tokens for _, tokens in prompt)
        if lacking > 0:
            prompt.append((10_000 + int(event["r"][1:]), lacking))
    return prompt


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
def test_every_decision_is_the_recorded_one(path: Path) -> None:
    recording = load(path)
    made = replay(recording, policy_of(recording["settings"]))
    print(f"{path.stem}: {made}")
    assert made.all_of_it, made
    assert made.unlikely < UNLIKELY


# ---------------------------------------------------------------- what is nearly right
class Contiguous(Small):
    """Counts the leading blocks of each worker."""

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        held, values = mine.scores.held, mine.scores.values
        leading(mine.believed, view, request, values)
        counted(mine.believed, view, request, held)
        prompt = prompt_of(mine, view, request, self.match_length_weight)
        for gpu in range(len(held)):
            if held[gpu] < prompt.blocks:
                held[gpu] = values[gpu]
        add_up(mine.scores, view, view.candidates, prompt)
        return send(mine, view, request, prompt, pick(mine, view.candidates))


class NoLeak(Small):
    def start(self, setup: Setup) -> Any:
        mine = super().start(setup)
        return mine._replace(believed=mine.believed._replace(leaks=False))


class FullBlocks(Small):
    def start(self, setup: Setup) -> Any:
        mine = super().start(setup)
        return mine._replace(believed=mine.believed._replace(partial=False))


class Shared(Small):
    """Weights add up to 1."""

    def start(self, setup: Setup) -> Any:
        mine = super().start(setup)
        weights = mine.scores.weights
        return mine._replace(scores=mine.scores._replace(weights=weights / weights.sum()))


class Longest(Small):
    """A match counts as it is long, to 8,192 tokens."""

    def start(self, setup: Setup) -> Any:
        return without(super().start(setup), scorers.PREFIX)

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        counted(mine.believed, view, request, mine.scores.held)
        prompt = prompt_of(mine, view, request, self.match_length_weight)
        add_up(mine.scores, view, view.candidates, prompt)
        for gpu in range(len(mine.scores.total)):
            mine.scores.total[gpu] += 3 * min(1, mine.scores.held[gpu] * mine.believed.block_size / 8192)
        return send(mine, view, request, prompt, pick(mine, view.candidates))


class ShortQueues(Small):
    """1 / (1 + waiting), whatever the others have."""

    def start(self, setup: Setup) -> Any:
        return without(super().start(setup), scorers.WAITING)

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        counted(mine.believed, view, request, mine.scores.held)
        prompt = prompt_of(mine, view, request, self.match_length_weight)
        add_up(mine.scores, view, view.candidates, prompt)
        for gpu in range(len(mine.scores.total)):
            mine.scores.total[gpu] += 2 / (1 + view.gpus[gpu].queued)
        return send(mine, view, request, prompt, pick(mine, view.candidates))


class MostAndLeast(Small):
    """Matches from the least to the most of all workers, as it once was."""

    def start(self, setup: Setup) -> Any:
        mine = super().start(setup)
        mine.scores.scorers[mine.scores.scorers == scorers.PREFIX] = scorers.REPORTED_PREFIX
        return mine

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        held = mine.scores.held
        counted(mine.believed, view, request, held)
        for gpu in range(len(held)):
            mine.scores.reported[gpu] = held[gpu]
        prompt = prompt_of(mine, view, request, self.match_length_weight)
        add_up(mine.scores, view, view.candidates, prompt)
        return send(mine, view, request, prompt, pick(mine, view.candidates))


def without(mine: Any, scorer: int) -> Any:
    kept = mine.scores.scorers != scorer
    return mine._replace(scores=mine.scores._replace(weights=mine.scores.weights * kept))


class AllBlocks(BlisWeighted):
    """BLIS with llm-d's partial blocks."""

    def start(self, setup: Setup) -> Any:
        mine = super().start(setup)
        return mine._replace(believed=mine.believed._replace(partial=True))


class Whole(BlisWeighted):
    """BLIS with weights as they are."""

    def start(self, setup: Setup) -> Any:
        mine = super().start(setup)
        weights = np.array([weight for _, weight in dict(self.scorers).items()])
        return mine._replace(scores=mine.scores._replace(weights=weights))


class ShareOfPrompt(BlisWeighted):
    """BLIS, where what workers report counts as a share of the prompt."""

    def start(self, setup: Setup) -> Any:
        mine = super().start(setup)
        mine.scores.scorers[mine.scores.scorers == scorers.REPORTED_PREFIX] = scorers.PREFIX
        return mine._replace(scores=mine.scores._replace(held=mine.scores.reported))


WRONG: list[tuple[type[Any], str, str]] = [
    (Contiguous, "llmd_small_lru_w4", "matches"),
    (NoLeak, "llmd_small_lru_w4", "matches"),
    (FullBlocks, "llmd_default_w2_b16", "matches"),
    (Shared, "llmd_default_w2_b16", "scores"),
    (Longest, "llmd_small_lru_w4", "agree"),
    (ShortQueues, "llmd_small_lru_w4", "agree"),
    (MostAndLeast, "llmd_small_lru_w4", "agree"),
    (AllBlocks, "blis_prefix_affinity_w4", "scores"),
    (Whole, "blis_prefix_affinity_w4", "scores"),
    (ShareOfPrompt, "blis_default_w2", "agree"),
    (LeastOutstanding, "blis_least_loaded_w4", "agree"),
]
"""a rule, a recording that catches it, and in what"""


@pytest.mark.parametrize(("kind", "name", "what"), WRONG, ids=[kind.__name__ for kind, _, _ in WRONG])
@pytest.mark.slow
def test_what_is_nearly_right_is_caught(kind: type[Any], name: str, what: str) -> None:
    (path,) = (path for path in OURS if path.stem == name)
    recording = load(path)
    made = replay(recording, policy_of(recording["settings"], kind))
    print(f"{kind.__name__}, {name}: {made}")
    assert getattr(made, what) < made.decisions
