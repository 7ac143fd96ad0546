"""Keys that do nothing: a sweep over one would show the same run under several values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from prebleexp.errors import InvalidInput
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.key import contents, digest
from prebleexp.launch.parts import key_of
from prebleexp.workloads.replayed import WHOLE, Replayed

Lines = Sequence[str]


def refuse(jobs: Sequence[Lines], cells: Sequence[Cell]) -> None:
    """`jobs`: the overrides of each of the cells. Raises InvalidInput if a key has several values, and in no cell does
    it matter which."""
    given = [{key_of(line): line.partition("=")[2] for line in lines} for lines in jobs]
    in_order = [dict(sorted(one.items())) for one in given]
    for key in dict.fromkeys(key for one in given for key in one):
        values = dict.fromkeys(one[key] for one in given if key in one)
        if len(values) > 1 and not _matters(key, in_order, cells):
            raise InvalidInput(f"{key}={','.join(values)} does nothing here: {why(key, cells[0])}")


def _matters(key: str, given: Sequence[Mapping[str, str]], cells: Sequence[Cell]) -> bool:
    """`given`: the values of each cell by key, all in the same order."""
    groups: dict[tuple[tuple[str, str], ...], dict[str, Cell]] = defaultdict(dict)
    for one, cell in zip(given, cells, strict=True):
        if key in one:
            groups[tuple((name, value) for name, value in one.items() if name != key)][one[key]] = cell
    several = [list(one.values()) for one in groups.values() if len(one) > 1]
    return not several or any(_key(one) != _key(of[0]) for of in several for one in of[1:])


def _key(cell: Cell) -> str:
    """Of a run, without its duration where that does nothing: of a recording whose requests wait for none, all of which
    is served."""
    workload = cell.workload
    recorded = isinstance(workload, Replayed) and workload.load in WHOLE and not workload.is_closed(workload.whole)
    drained = (
        cell.profile.changes_nothing
        and cell.horizon == "drain"
        and cell.faults.changes_nothing
        and cell.engine.own_loop() is None
    )
    return digest(contents([replace(cell, duration_s=1.0) if recorded and drained else cell])[0])


def sentences(lines: Lines, cell: Cell) -> list[str]:
    """What of one configuration's overrides does nothing in it."""
    keys = dict.fromkeys(key_of(line) for line in lines)
    idle = [key for key in keys if key in OF_LEFT_OUT and OF_LEFT_OUT[key] in cell.left_out]
    return [f"{key} does nothing here: {why(key, cell)}" for key in idle]


OF_LEFT_OUT = {
    "rps": "rps",
    "rps_per_gpu": "rps",
    "seed": "seed",
    "output_length": "output_length",
    "lengths": "lengths",
}
"""keys, and what they are called that does not matter"""


def why(key: str, cell: Cell) -> str:
    """What makes a key do nothing, and the way out."""
    workload = cell.names.get("workload", "")
    if key in ("rps", "rps_per_gpu", "duration_s") and cell.workload.users is not None:
        return "the load is users; say workload.lanes= in its place"
    if key == "duration_s":
        return "all of the recording is served, however long that takes; leave out workload.load, or say horizon=stop"
    if key in ("rps", "rps_per_gpu") and not isinstance(cell.workload, Replayed) and "rps" not in cell.workload.obeys:
        return f"workload={workload} says itself how many come and when; see its fields (workload.…)"
    if key in ("rps", "rps_per_gpu") and "rps" not in cell.workload.obeys:
        return f"workload={workload} comes when it was recorded; leave out workload.load, and it comes at this rate"
    if key == "seed":
        return "nothing is drawn, so that all seeds are one run"
    if key.startswith("lengths"):
        return "the policy reads no lengths"
    if key.startswith("output_length"):
        return f"workload={workload} has lengths of its own"
    return "all its values make the same runs; leave it out, or set what needs it"
