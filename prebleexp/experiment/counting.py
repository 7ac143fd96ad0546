"""How many GPUs a run has, and how many replicas: in its configuration, its key, and in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prebleexp.cluster.replicas import Size, size_of
from prebleexp.engines.base import Engine
from prebleexp.hardware.base import Hardware

if TYPE_CHECKING:
    from prebleexp.experiment.cell import Cell

USUAL = 8
"""GPUs, or of engines with machines of their own, machines, where nothing is said"""
SPLITWISE = "prebleexp.engines.splitwise.engine.Splitwise"
"""in a key, the engine whose replicas are machines"""


def size(engine: Engine, hardware: Hardware, gpus: object, replicas: object = None) -> Size:
    """Of GPUs of one kind; without both numbers the usual one. Raises InvalidInput as `size_of`."""
    own = "hardware" in engine.brings
    each = engine.gpus_per_replica if own else hardware.gpus_per_replica
    by = f"engine={type(engine).__name__.lower()}, whose machines have {each}" if own else ""
    if gpus is None and replicas is None:
        gpus = USUAL * engine.gpus_per_replica
    together = 1 if own else hardware.ranks
    return size_of(gpus, replicas, each, by=by or hardware.replica_said, together=together)


def apart(gpus: int, replicas: int) -> dict[str, object]:
    """What a key has besides `gpus`: nothing where these are the replicas."""
    return {} if gpus == replicas else {"replicas": replicas}


def counted(cell: Mapping[str, Any]) -> dict[str, Any]:
    """A cell in a key as it is written today. Before GPUs were counted, `gpus` was the number of replicas, and nothing
    else was said; where a replica is one GPU that is the same."""
    cluster = cell.get("cluster", ())
    groups = cluster["groups"] if isinstance(cluster, Mapping) else cluster
    if not groups:
        if cell.get("engine", {}).get("_target_") != SPLITWISE:
            return _counted(cell, _each(cell.get("hardware", {})))
        from prebleexp.engines.splitwise.engine import Splitwise  # which other runs need not load

        return _counted(cell, Splitwise.gpus_per_replica)
    whole = [_counted(one, _each(one["hardware"])) for one in groups]
    gpus, replicas = (sum(one.get(name, one["gpus"]) for one in whole) for name in ("gpus", "replicas"))
    made = {**cell, "cluster": {**cluster, "groups": whole} if isinstance(cluster, Mapping) else whole}
    return made | {"gpus": gpus} | apart(gpus, replicas)


def _counted(one: Mapping[str, Any], each: int) -> dict[str, Any]:
    if "replicas" in one or each == 1:
        return dict(one)
    return {**one, "gpus": one["gpus"] * each, "replicas": one["gpus"]}


def _each(hardware: Mapping[str, Any]) -> int:
    return int(hardware.get("tensor_parallel", 1))


def replica_gpus(cell: Cell) -> list[int]:
    """GPUs of each replica, in the order of their numbers: (replicas,)."""
    return [one.each for one in cell.sizes for _ in range(one.replicas)]


def unit(cell: Cell) -> str:
    """What a place of the simulation is called that requests are sent to."""
    return "GPU" if cell.gpus == cell.replicas else "replica"


def gpus(count: int) -> str:
    """A number of GPUs in words: "1 GPU", "8 GPUs"."""
    return f"{count:,} GPU{'' if count == 1 else 's'}"


def words(cell: Cell) -> str:
    """ "8 GPUs (4 replicas of 2)", "6 GPUs (2 replicas of 2, 2 replicas of 1)" """
    splits = [one.split for one in cell.sizes]
    return gpus(cell.gpus) + (f" ({', '.join(splits)})" if cell.gpus != cell.replicas else "")


def named(cell: Cell) -> str:
    """By kind: "4 H100 (2 replicas of 2) + 4 H200"; of pools "4 H100 for prefill + 4 H100 for decode"."""
    return " + ".join(
        of_kind(size, name) + (f" for {role}" if role in ("prefill", "decode") else "")
        for size, name, role in kinds(cell)
    )


def of_kind(size: Size, name: str) -> str:
    """ "4 H100 (2 replicas of 2)"; `name` is empty where nobody says of which kind they are."""
    count = f"{size.gpus:,} {name.upper()}" if name else gpus(size.gpus)
    return f"{count} ({size.split})" if size.each > 1 else count


def kinds(cell: Cell) -> Sequence[tuple[Size, str, str | None]]:
    """Size, name of the GPU and role of each kind."""
    own = "hardware" in cell.engine.brings
    names = ["" if own else one.hardware.gpu_name for one in cell.kinds]
    return list(zip(cell.sizes, names, (one.role for one in cell.kinds), strict=True))
