"""Speculative decoding: drafts that a step verifies beside the token that it would compute (vllm/v1/core/sched).

Asynchronous scheduling knows no drafts when it schedules the next step: whoever samples is scheduled as if all were
accepted, and what was rejected is taken back when the step is over. So a request may be in a whole step for nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prebleexp.engines.vllm.phases import nothing
from prebleexp.engines.vllm.records import NEVER, PULLED, STEPS, Engines
from prebleexp.engines.vllm.speculative import SpeculativeConfig
from prebleexp.engines.vllm.tables import cached
from prebleexp.sim.compiled import chosen_by, compiled
from prebleexp.sim.records import World
from prebleexp.sim.types import Setup

ACCEPTED, PROPOSED = range(40, 42)
"""random streams"""
DRAWS = 2**18
"""of a run: each request goes through them from a place of its own on"""


class Draws(NamedTuple):
    """A number for each time that a request asks for one: the same whenever and wherever that is."""

    of: Any
    """(d,) all of them"""
    first: Any
    """(n,) where each request begins"""
    span: int
    """after so many it begins anew"""


class Speculation(NamedTuple):
    accepts: Draws
    """drafts accepted of a step that has enough of them"""
    proposes: Draws
    """drafts for the next step"""
    verified: Any
    """(n,) steps with drafts that were verified"""
    proposed: Any
    """(n,) steps after which drafts were proposed"""
    ended_s: Any
    """(GPUs,) when the last step was over"""
    prefills: Any
    """(GPUs,) whether a running request of the step that is being scheduled was part-way in its prompt"""
    takes_padding: bool
    """whether placeholders are accepted like drafts: in truth never, but recordings of asynchronous scheduling do so"""


def speculation(setup: Setup, of: SpeculativeConfig) -> Speculation | None:
    """What is drafted and accepted; None if nothing is drafted."""
    if of.drafts == 0:
        return None
    accepted = np.random.default_rng([setup.seed, ACCEPTED])
    steps = np.searchsorted(1 - of.at_least, accepted.random(DRAWS), side="right")
    found = np.random.default_rng([setup.seed, PROPOSED])
    proposed = np.where(found.random(DRAWS if of.draft_rate < 1 else 1) < of.draft_rate, of.drafts, 0)
    n = len(setup.workload)
    return scripted(_draws(accepted, steps, n), _draws(found, proposed, n), setup.gpus)


def scripted(accepts: Draws, proposes: Draws, gpus: int, takes_padding: bool = False) -> Speculation:
    """With drafts that are known before the run. `accepts`, `proposes`: of n requests."""
    n = len(accepts.first)
    verified, proposed, prefills = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(gpus, np.int64)
    return Speculation(accepts, proposes, verified, proposed, np.zeros(gpus), prefills, takes_padding)


def _draws(rng: np.random.Generator, of: npt.NDArray[Any], n: int) -> Draws:
    return Draws(of.astype(np.int8), rng.integers(0, len(of), n), DRAWS)


@compiled
def drawn(draws: Draws, request: int, time: int) -> int:
    return int(draws.of[(draws.first[request] + time % draws.span) % len(draws.of)])


@compiled
def proposed(spec: Speculation, request: int) -> int:
    """Drafts of a running request that were proposed after its last step, if that sampled."""
    return drawn(spec.proposes, request, int(spec.proposed[request]) - 1)


@compiled
def _placeholders(mine: Engines, world: World, g: int, request: int) -> int:
    """With how many a waiting request that lacks one token is padded, so that decodes of a step are alike; NEVER: it is
    not."""
    gpu, settings, job = mine.gpus[g], mine.settings, mine.jobs[request]
    known, drafts = int(job.known), int(settings.drafts)
    if job.filling >= PULLED:  # its KV has come
        step = mine.steps[g, gpu.scheduled % STEPS]
        alone = mine.speculation.prefills[g] == 0 and job.computed == known - 1
        alone = alone and (job.computed > 0 or step.chosen > step.admitted)
        return drafts if alone and known + 1 + drafts <= settings.context_length else NEVER
    if mine.speculation.prefills[g] != 0 or (known - 1) % settings.block_size != 0:
        return NEVER
    found, step = known - 1, mine.steps[g, gpu.scheduled % STEPS]
    if found + 2 + drafts > settings.context_length or (step.chosen == step.admitted and found == 0):
        return NEVER
    hits, _ = cached(mine, world, g, request)
    return drafts if hits * settings.block_size == found else NEVER


placeholders = chosen_by("speculation", nothing, _placeholders)
