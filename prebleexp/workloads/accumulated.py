"""Prompts of sessions of which only lengths are known, as if a turn began with all that was said before it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from prebleexp.sim.types import Ints, Longs
from prebleexp.workloads.blocks import Prompts
from prebleexp.workloads.growth import NOBODY, grown

GROWTH = ("none", "accumulate")
CURE = "workload.growth=accumulate has a turn begin with the prompt and the answer before it"
ELSEWHERE = f"with workload=request_log, {CURE}"


class Accumulated(NamedTuple):
    """Prompts of n requests."""

    prompts: Prompts
    answer: Ints
    """(n,) the segment of its answer in later prompts; −1: in none"""
    says: str


def accumulated(prompt_tokens: Longs, output_tokens: Longs, session: Ints, turn: Ints) -> Accumulated:
    """A turn begins with the prompt and the answer of the turn before it, if it is as long as both; else with that
    prompt alone, if it is as long as that. A shorter one shares nothing: its session was cut or summed up, so that its
    beginning is another.

    Arrays are of shape (n,), in order of arrival; outputs are those that are generated.
    """
    n = len(prompt_tokens)
    order = np.lexsort((turn, session))
    later = np.flatnonzero(session[order][1:] == session[order][:-1]) + 1
    of = np.full(n, NOBODY, np.int64)
    of[order[later]] = order[later - 1]
    before = prompt_tokens[of]
    context = before + output_tokens[of]
    keep = np.where(prompt_tokens >= context, context, np.where(prompt_tokens >= before, before, 0))
    keep = np.where(of >= 0, keep, 0)
    prompts, answer = grown(of, keep, prompt_tokens, output_tokens)
    turns, whole = int((of >= 0).sum()), int(((of >= 0) & (prompt_tokens >= context)).sum())
    some = int((keep > 0).sum()) - whole
    says = f"assumed: {whole:,} of {turns:,} later turns begin with the prompt and the answer before them"
    says += f", {some:,}, too short for that, with the prompt" if some else ""
    says += f", {turns - whole - some:,}, shorter still, share nothing" if turns - whole - some else ""
    return Accumulated(prompts, answer, says)
