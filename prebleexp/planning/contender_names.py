"""What contenders of a plan are called: what they differ by, and nothing that is the same in all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from prebleexp.experiment import counting
from prebleexp.experiment.cell import Cell

GROUPS = "cluster.groups"
ROLES = {"prefill": "P", "decode": "D"}


def places(cells: Sequence[Cell], axes: Sequence[str]) -> list[dict[str, object]]:
    """The values of each on the axes, the policy first; groups of GPUs in short, where that tells them apart."""
    found: list[dict[str, object]] = []
    for cell in cells:
        columns = cell.columns()
        own = [axis for axis in axes if axis in columns and axis != "policy"]
        found.append({name: columns[name] for name in ("policy", *own)})
    if any(GROUPS in one for one in found):
        short = [_groups(cell) for cell in cells]
        if len(set(short)) == len({str(one[GROUPS]) for one in found}):
            for one, name in zip(found, short, strict=True):
                one[GROUPS] = name
    return found


def names(found: Sequence[Mapping[str, object]]) -> list[str]:
    """Of places: as "e2", "tensor_parallel=2", "lor 1P 2D"."""
    axes = differing(found) or ["policy"]
    short = brief(axes)
    return [" ".join(said(axis, short[axis], one[axis]) for axis in axes) for one in found]


def differing(found: Sequence[Mapping[str, object]]) -> list[str]:
    """The axes that some of these places have another value on."""
    axes = dict.fromkeys(axis for one in found for axis in one)
    return [axis for axis in axes if len({str(one.get(axis)) for one in found}) > 1]


def brief(axes: Iterable[str]) -> dict[str, str]:
    """Keys without the group that they are of, where that tells all of them apart."""
    short = {axis: axis.rpartition(".")[2] for axis in axes}
    return short if len({*short.values()}) == len(short) else {axis: axis for axis in short}


def said(axis: str, short: str, value: object) -> str:
    """A place on an axis: "tensor_parallel=2"; of routers and groups of GPUs the name alone."""
    return str(value) if axis in ("policy", GROUPS) else f"{short}={value}"


def _groups(cell: Cell) -> str:
    """ "1P 2D", "3 whole", "1 H100 P + 2 A100 D" """
    kinds = counting.kinds(cell)
    if len({name for _, name, _ in kinds}) == 1:
        return " ".join(f"{size.replicas}{ROLES.get(str(role), ' whole')}" for size, _, role in kinds)
    return " + ".join(
        f"{size.replicas} {name.upper()} {ROLES.get(str(role), '')}".rstrip() for size, name, role in kinds
    )
