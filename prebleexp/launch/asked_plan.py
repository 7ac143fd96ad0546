"""What a plan asks for, from its overrides and its own settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prebleexp.errors import InvalidInput
from prebleexp.launch.multirun import Multirun
from prebleexp.launch.parts import key_of
from prebleexp.planning.contender import GPUS, RPS, USERS
from prebleexp.planning.prices import Prices

POPULATION = "workload.load=population"
"""the load is users then, and not a rate"""

NOT_ONE = (
    "gpus and {load}: {said} given; plan gpus=8 finds the greatest load, {many} the fewest GPUs, and a recording"
    " (workload.load=recorded) needs neither"
)
MANY = {RPS: "plan rps=64", USERS: "workload.lanes=200"}

REFUSED = {
    **dict.fromkeys(
        ("replications", "ci", "ci_metric", "max_replications"), "a plan adds seeds itself: seeds=, most_seeds="
    ),
    "rps_per_gpu": "a plan searches for gpus or rps: give the other one",
    "sweeps": "a plan searches; it has no sweep",
    "objective": "a plan searches for a load, or for GPUs",
}
"""why they are"""
OF_COMMAND = {"duration_s", "slo.target"}
"""keys of which it matters whether the command line says them: a sweep's own file may for other limits"""


@dataclass(frozen=True)
class Asked:
    """What a plan asks for, besides its contenders."""

    searched: str
    load_given: bool
    """whether one of the two was said: of a recording neither is"""
    tolerance: float
    seeds: int
    most_seeds: int
    requests: int | None
    most_requests: int
    prices: Prices | None
    lasting: bool
    """whether it says how long a run is"""
    answer_only: bool
    """whether nothing is said besides the answer"""
    target_given: bool = False
    """whether it says slo.target"""


def asked(overrides: Sequence[str], values: Mapping[str, Any]) -> Asked:
    """What overrides and a plan's own settings ask for. Raises InvalidInput if both of gpus (or replicas) and rps are
    given."""
    keys = {GPUS if key_of(line) == "replicas" else key_of(line) for line in overrides}
    for key in keys:
        if key in REFUSED:
            raise InvalidInput(f"{key}: {REFUSED[key]}")
    load = USERS if POPULATION in overrides else RPS
    if load == USERS and RPS in keys:
        raise InvalidInput(f"rps: the load of {POPULATION} is users: {USERS}")
    free = [key for key in (load, GPUS) if key not in keys]
    if not free:
        raise InvalidInput(NOT_ONE.format(load=load, said="both", many=MANY[load]))
    price = values["price_per_gpu_hour"]
    return Asked(
        searched=free[-1],
        load_given=len(free) == 1,
        tolerance=values["tol"],
        seeds=values["seeds"],
        most_seeds=values["most_seeds"],
        requests=values["requests"],
        most_requests=values["most_requests"],
        prices=None if price is None else Prices(price),
        lasting="duration_s" in keys,
        answer_only=values["answer_only"],
        target_given="slo.target" in keys,
    )


def asked_by(multirun: Multirun, overrides: Sequence[str]) -> Asked:
    """What a sweep of plans asks for. Raises InvalidInput where it gives both of gpus and rps."""
    settings = multirun.settings
    assert settings.plans is not None
    keys = [{key_of(line) for line in (*overrides, *part.overrides, *part.params)} for part in settings.parts]
    said = {key_of(line) for line in overrides} & OF_COMMAND
    same = sorted({*keys[0]}.union(*keys[1:]) - {"sweeps", *OF_COMMAND} | said)
    values = {
        name: getattr(settings.plans, name) for name in ("tol", "seeds", "most_seeds", "requests", "most_requests")
    }
    return asked([f"{key}=" for key in same], values | {"price_per_gpu_hour": None, "answer_only": True})
