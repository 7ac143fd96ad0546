"""What contenders of a plan are called in a sentence: what several have in common is said once."""

from __future__ import annotations

from collections.abc import Sequence

from prebleexp.planning.planned import Planned
from prebleexp.report.wording import listed

MOST_NAMED = 3
"""routers of a sentence where all of the plan are meant"""


def named(of: Sequence[Planned], found: Sequence[Planned]) -> str:
    """ "lor and e2 (both hardware.tensor_parallel=2)", "all 12 routers": some of the contenders of a plan."""
    every = {_router(one) for one in found}
    alike: dict[str, list[str]] = {}
    for one in of:
        router = _router(one)
        shared = one.name.removeprefix(f"{router} ") if router and one.name != router else ""
        alike.setdefault(shared if router else one.name, []).append(router)
    if len(alike) > 1 and len(of) == len(found) > MOST_NAMED:
        return f"all {len(of)} contenders"
    return listed([_called(routers, shared, len(every)) for shared, routers in alike.items()])


def _router(one: Planned) -> str:
    """With which a name begins; nothing where the plan has one router."""
    router = str(one.at.get("policy", ""))
    return router if one.name.split(" ")[0] == router else ""


def _called(routers: Sequence[str], shared: str, every: int) -> str:
    if routers == [""]:
        return shared
    if len(routers) > MOST_NAMED and len(set(routers)) == every:
        return f"all {every} routers{shared and f' ({shared})'}"
    if len(routers) == 1 or not shared:
        return f"{listed(routers)}{shared and f' {shared}'}"
    return f"{listed(routers)} ({'both' if len(routers) == 2 else 'all'} {shared})"
