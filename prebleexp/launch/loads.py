"""What load a configuration asks for: a trace's own times, unless a rate or a duration is given."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from prebleexp.checks import is_number
from prebleexp.errors import InvalidInput, significant
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.shape import by_chance, flattened
from prebleexp.experiment.shape import kept as shape_kept
from prebleexp.workloads.base import WorkloadSource
from prebleexp.workloads.profiles import Profile
from prebleexp.workloads.replayed import WHOLE, Replayed

PAPERS = "two_point"
"""how long answers are unless that is given"""
RPS, DURATION_S = 64, 30
"""of a load that is made up, unless they are given"""


class Asked(NamedTuple):
    """The load that is asked for of a cell."""

    workload: WorkloadSource
    rps: Any
    duration_s: Any


def asked_of(workload: WorkloadSource, profile: Profile, rps: Any, duration_s: Any) -> Asked:
    """`rps` and `duration_s` as given, None if they are not. Raises InvalidInput where a trace cannot have them, or
    where those of a profile are others."""
    rps, duration_s = _of_profile(workload, profile, rps, duration_s)
    if not isinstance(workload, Replayed):
        return Asked(workload, RPS if rps is None else rps, DURATION_S if duration_s is None else duration_s)
    if workload.load is None:
        scales = "scaled" in workload.loads and workload.recorded_rps is not None
        whole = "recorded" if rps is None else "scaled" if scales else "window"
        workload = replace(workload, load=whole if duration_s is None else "window")
    if workload.load in WHOLE and duration_s is None:
        duration_s = workload.span_s or DURATION_S
    if workload.load == "recorded":
        return Asked(workload, RPS if rps is None else rps, duration_s)
    if workload.load == "window" and duration_s is None:
        duration_s = min(DURATION_S, workload.span_s) or DURATION_S
    if rps is None and "rps" in workload.obeys:
        rps = workload.recorded_rps
        if rps is None and workload.load in ("window", "scaled"):
            raise InvalidInput(f"{workload.path} has no times that a rate could be of; take workload.load=poisson")
    return Asked(workload, RPS if rps is None else rps, DURATION_S if duration_s is None else duration_s)


def _of_profile(workload: WorkloadSource, profile: Profile, rps: Any, duration_s: Any) -> tuple[Any, Any]:
    """With the rate and the time that a profile has of its own."""
    if profile.duration_s is not None and isinstance(workload, Replayed) and workload.load in WHOLE:
        raise InvalidInput(
            f"profile=stages is not valid with workload.load={workload.load}, which lasts as long as it does; leave "
            "that out, and a window as long as the stages is taken"
        )
    for key, own, given, what in (
        ("rps", profile.rps, rps, "the mean of profile.stages; leave it out, or say profile.relative=true"),
        ("duration_s", profile.duration_s, duration_s, "the sum of profile.stages; leave it out, or change them"),
    ):
        if own is not None and is_number(given) and not math.isclose(given, own, rel_tol=1e-9):
            raise InvalidInput(f"{key}={given:g} is not valid; it must be {own:g}, {what}")
    return profile.rps if rps is None else rps, profile.duration_s if duration_s is None else duration_s


def files_of(cell: Cell) -> list[str]:
    """What a cell's file was taken for, what of that is improbable, and how much quicker it is played; of sessions that
    are made up, how long their answers are."""
    workload = cell.workload
    taken = workload.understood
    if taken is None:
        return _made_up(cell) if workload.in_sessions else []
    if not isinstance(workload, Replayed):
        return [taken.line, *taken.doubts]
    said = [*taken.doubts, *_too_long(workload, cell)]
    if "rps" in workload.obeys and (own := workload.recorded_rps):
        rps, recorded = significant(cell.rps, 4), significant(own, 4)
        shape = shape_kept(cell)
        times = f"{rps} requests/s are {significant(cell.rps / own)} times the recording's {recorded}"
        said.append(times if shape is None else f"{times}; {shape}")
    from prebleexp.experiment.cold import cut  # most runs replay nothing

    return [
        *flattened([cell]),
        *by_chance([cell]),
        *cut([cell]),
        taken.line,
        *(f"{workload.path}: {one}" for one in said),
    ]


def _made_up(cell: Cell) -> list[str]:
    """Nobody expects of chats what the paper takes for the answers of all its workloads."""
    if cell.names.get("output_length") != PAPERS or "output_length" not in cell.workload.obeys:
        return []
    return [
        f"half of the answers have 1 token and half have 300, as in the paper (output_length={PAPERS}); take "
        "output_length=discrete with lengths and probabilities of your own"
    ]


def _too_long(workload: Replayed, cell: Cell) -> list[str]:
    """How many requests no GPU's context holds."""
    whole, most = workload.whole, max(one.hardware.context_length for one in cell.kinds)
    cut = (
        whole.output_tokens
        if workload.max_new_tokens is None
        else np.minimum(whole.output_tokens, workload.max_new_tokens)
    )
    count = int((whole.prompt_tokens + cut > most).sum())
    return [f"{count:,} of its {len(whole):,} requests are longer than the context, {most:,} tokens"] if count else []
