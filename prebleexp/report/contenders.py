"""What contenders of a plan are called in a sentence: what several have in common is said once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from prebleexp.experiment import counting
from prebleexp.experiment.cell import Cell
from prebleexp.planning.contender_names import brief, differing, said
from prebleexp.planning.planned import Planned
from prebleexp.report.wording import listed, number

MOST_NAMED = 3
"""routers of a sentence where all of the plan are meant"""
OF_GPUS = ("hardware.gpu", "hardware.tensor_parallel")
"""axes that a number of GPUs says, too, as "2 H100 (1 replica of 2)" does"""


def named(of: Sequence[Planned], found: Sequence[Planned]) -> str:
    """ "lor and e2 (both tensor_parallel=2)", "all 12 routers": some of the contenders of a plan."""
    several = differing([one.at for one in found])
    if len(of) == len(found) > MOST_NAMED and several != ["policy"]:
        return f"all {len(of)} contenders"
    routers: dict[str, list[Planned]] = {}
    for one in of:
        routers.setdefault(_router(one), []).append(one)
    ways = [_by_place(of, found)]
    shared = _shared(of, found)
    if shared and len(of) > 1:
        ways.append(_in_common(of, found, shared))
    if len(of) > MOST_NAMED:
        each = [(some, _shared(some, found)) for some in routers.values()]
        lines = [some[0].name if len(some) == 1 else _in_common(some, found, at) for some, at in each if at is not None]
        ways += [listed(lines)] if len(lines) == len(each) else []
    return min(ways, key=len)


def beside_gpus(found: Sequence[Planned]) -> dict[str, Planned]:
    """By name all contenders, called by what a number of their GPUs does not say, where that tells them apart."""
    axes = differing([one.at for one in found])
    rest = [axis for axis in axes if axis not in OF_GPUS]
    sized = {(_kinds(one), one.contender.each, _place(one, rest)) for one in found}
    if rest in ([], axes) or len(sized) < len(found):
        return {one.name: one for one in found}
    return {
        one.name: replace(one, name=_place(one, rest), at={axis: one.at.get(axis) for axis in rest}) for one in found
    }


def priced(one: Planned, there: Cell) -> str:
    """ "14 H100 at 35.0 an hour", of these many, by the contender's prices if there are any."""
    money = "" if one.prices is None else f" at {number(one.prices.an_hour(there))} an hour"
    return f"{counting.named(there)}{money}"


def _kinds(one: Planned) -> tuple[str, ...]:
    return tuple(name for _, name, _ in counting.kinds(one.contender.cell))


def _place(one: Planned, axes: Sequence[str]) -> str:
    short = brief(axes)
    return " ".join(said(axis, short[axis], one.at.get(axis)) for axis in axes)


def _shared(of: Sequence[Planned], found: Sequence[Planned]) -> Mapping[str, list[str]] | None:
    """By axis the values of these, where the plan has others, too; None unless these are all that have such values."""
    if any("policy" not in one.at for one in found):
        return None
    axes = differing([one.at for one in found])
    own = {axis: list(dict.fromkeys(str(one.at.get(axis)) for one in of)) for axis in axes}
    alike = [one for one in found if all(str(one.at.get(axis)) in own[axis] for axis in axes)]
    if len(alike) != len(of):
        return None
    return {axis: own[axis] for axis in axes if len(own[axis]) < len({str(one.at.get(axis)) for one in found})}


def _in_common(of: Sequence[Planned], found: Sequence[Planned], shared: Mapping[str, list[str]]) -> str:
    """ "lor and llmd (all 4 with tensor_parallel=4)" """
    routers = list(dict.fromkeys(map(_router, of)))
    who = "" if routers == [""] else _routers(routers, found)
    short = brief(differing([one.at for one in found]))
    at = " ".join(said(axis, short[axis], ",".join(of)) for axis, of in shared.items() if axis != "policy")
    count = "both" if len(of) == 2 else f"all {len(of)}"
    if not at:
        return f"{who} everywhere"
    return f"{who} ({count} with {at})" if who else f"{count} with {at}"


def _by_place(of: Sequence[Planned], found: Sequence[Planned]) -> str:
    alike: dict[str, list[str]] = {}
    for one in of:
        router = _router(one)
        shared = one.name.removeprefix(f"{router} ") if router and one.name != router else ""
        alike.setdefault(shared if router else one.name, []).append(router)
    return listed([_called(routers, shared, found) for shared, routers in alike.items()])


def _router(one: Planned) -> str:
    """With which a name begins; nothing where the plan has one router."""
    router = str(one.at.get("policy", ""))
    return router if one.name.split(" ")[0] == router else ""


def _routers(routers: Sequence[str], found: Sequence[Planned]) -> str:
    """All of a plan's by their number, where they are many."""
    every = len({_router(one) for one in found})
    return f"all {every} routers" if len(routers) > MOST_NAMED and len({*routers}) == every else listed(routers)


def _called(routers: Sequence[str], shared: str, found: Sequence[Planned]) -> str:
    if routers == [""]:
        return shared
    who = _routers(routers, found)
    if len(routers) == 1 or not shared:
        return f"{who}{shared and f' {shared}'}"
    if who != listed(routers):
        return f"{who} ({shared})"
    return f"{who} ({'both' if len(routers) == 2 else 'all'} {shared})"
