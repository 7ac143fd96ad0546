"""Which features a configuration has, and what to take in place of one that does not go with another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prebleexp.errors import InvalidInput
from prebleexp.sim.compatibility import PROTOCOLS, PULL, ROLES, refusal_of

if TYPE_CHECKING:
    from prebleexp.experiment.cell import Cell

WITHOUT = {
    **dict.fromkeys(ROLES, "groups without roles"),
    "decider": "cluster.decider=always",
    "tiers": "a cluster without tiers",
    "peers": "cluster.peers.gb_s=0",
    "migration": "a cluster without migration",
    "autoscaler": "autoscaler=none",
    "faults": "faults=none",
    "resume": "faults.on_loss=retry or fail",
    "requeue": "faults.drain=finish",
    "kinds": "one group",
    "gateway": "gateway=open",
    "replicas": "gateway.replicas=1",
    "ranks": "hardware.data_parallel_size=1",
    "stages": "hardware.pipeline_parallel_size=1",
    "serial": "overhead=recorded or none",
}
"""of each feature that a configuration says, how to have none of it"""


def features_of(cell: Cell) -> Iterator[str]:
    """Those of `prebleexp.sim.compatibility` that the configuration says: how long requests wait, their stream says."""
    cluster, changes, of = cell.cluster, cell.gpus_change, cell.hardware
    others = cluster.groups[1:]
    there = {
        cluster.protocol or PULL: cluster.has_roles,
        "decider": cluster.has_roles and cluster.decider != "always",
        "tiers": cluster.has_tiers,
        "peers": cluster.peers.there,
        "migration": cluster.migrates,
        "autoscaler": not cell.autoscaler.changes_nothing,
        "faults": changes,
        "resume": changes and cell.faults.resumes,
        "requeue": changes and cell.faults.requeues,
        "kinds": len(cluster.groups) > 1,
        "gateway": not cell.gateway.lets_all_pass,
        "replicas": cell.gateway.replicas > 1,
        "ranks": of.ranks > 1 or (bool(others) and any(one.hardware.ranks > 1 for one in others)),
        "stages": of.stages > 1 or (bool(others) and any(one.hardware.stages > 1 for one in others)),
        "serial": cell.overhead.mode == "serial",
    }
    return (name for name, is_there in there.items() if is_there)


def _way(name: str, cell: Cell, there: list[str]) -> str:
    """How to have none of a feature: another protocol, if that is enough and the engine has it."""
    if name in PROTOCOLS and PULL in cell.engine.protocols and refusal_of({*there} - {name} | {PULL}) is None:
        return f"cluster.protocol={PULL}"
    return WITHOUT[name]


def check(cell: Cell) -> None:
    """Raises InvalidInput for features that are not modelled at once, or not by the engine."""
    there = [*features_of(cell)]
    for name in ("ranks", "stages"):
        if name in there and not (cell.engine.parallel or "hardware" in cell.engine.brings):
            engine = cell.names.get("engine", type(cell.engine).__name__)
            raise InvalidInput(f"{WITHOUT[name][:-1]}… is not valid with engine={engine}; take engine=vllm, or 1")
    if "stages" in there:
        cell.engine.check_stages()
    refusal = refusal_of(there)
    if refusal is not None:
        ways = dict.fromkeys(_way(name, cell, there) for name in refusal.between(there))
        raise InvalidInput(f"{refusal.sentence}: take {', or '.join(ways)}")
