"""What comes to a cluster: how a cell's arrivals, profile and adapters change its workload, and the load in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from prebleexp.errors import InvalidInput

if TYPE_CHECKING:
    from prebleexp.experiment.cell import Cell
    from prebleexp.sim.types import Workload


class Load(NamedTuple):
    """What a run is asked to serve: a rate or a number of users, for how long, and how it changes."""

    rps: float | None
    """requests a second; None: it is users, or it has no rate"""
    users: int | None
    duration_s: float
    changes: str = ""
    """how the rate changes, as "2 → 8 requests/s in 3 stages"; empty: it does not"""
    how: str = ""
    """what else there is to say of when they come, as "gamma gaps of CV 2"; empty: nothing"""
    says: str | None = None
    """in words, where these are others"""

    @property
    def words(self) -> str:
        """As "at 3 requests/s for 30 s"."""
        if self.says is not None:
            return self.says
        for_s = f"for {_number(self.duration_s)} s{f', {self.how}' if self.how else ''}"
        if self.users is not None:
            return f"with {self.users:,} user{'' if self.users == 1 else 's'} {for_s}"
        if self.changes:
            return f"at {self.changes} {for_s}"
        return "as recorded" if self.rps is None else f"at {_number(self.rps)} requests/s {for_s}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() or value >= 10_000 else f"{value:.4g}"


def load_of(cell: Cell) -> Load:
    """The rate that was asked for, or a recording's own, or users."""
    workload = cell.workload
    if workload.users is not None:
        return Load(None, workload.users, cell.duration_s)
    own = cell.rps if "rps" in workload.obeys else workload.own_rps
    rps = own if own is None or own is cell.rps else float(f"{own:.4g}")
    plain = cell.arrivals.changes_nothing and cell.profile.changes_nothing
    if plain:
        return Load(rps, None, cell.duration_s, says=workload.says)
    changes = "" if rps is None or cell.profile.changes_nothing else cell.profile.words(rps, cell.duration_s)
    of = "sessions are what starts so" if workload.in_sessions else ""
    return Load(rps, None, cell.duration_s, changes, ", ".join(filter(None, (cell.arrivals.words, of))))


def asked(cell: Cell) -> dict[str, object]:
    """What a cell is asked to serve, as columns beside the metrics of its runs (`prebleexp.losses`)."""
    rps = cell.rps if "rps" in cell.workload.obeys else None
    return {"horizon": cell.horizon, "duration_s": cell.duration_s, "users": cell.workload.users, "rps": rps}


def check(cell: Cell) -> None:
    """Raises InvalidInput for arrivals or a profile that the workload cannot have, or adapters of an engine without."""
    name, workload = cell.names.get("workload", type(cell.workload).__name__), cell.workload
    for key, given, usual in (("arrivals", cell.arrivals, "poisson"), ("profile", cell.profile, "flat")):
        if given.changes_nothing or key in workload.retimed_by:
            continue
        option = cell.names.get(key, type(given).__name__)
        if workload.users is not None:
            why = "its load is users, who come when they have their answers"
        elif workload.rates:
            why = "it has stages of its own: workload.stages="
        else:
            why = "its requests have gaps of their own"
        raise InvalidInput(f"{key}={option} is not valid with workload={name}; {why}: take {key}={usual}")
    if not cell.profile.changes_nothing:
        cell.profile.curve(cell.duration_s)
    if not cell.adapters.changes_nothing and not cell.engine.adapts:
        option, engine = cell.names.get("adapters", ""), cell.names.get("engine", type(cell.engine).__name__)
        raise InvalidInput(f"adapters={option} is not valid with engine={engine}, which has none; take engine=vllm")


def retimed(cell: Cell, workload: Workload) -> Workload:
    """The stream as the cell's arrivals, profile and adapters have it."""
    if not cell.arrivals.changes_nothing:
        from prebleexp.workloads.arrivals import with_gaps

        workload = with_gaps(workload, cell.arrivals, cell.rps, cell.seed)
    if not cell.profile.changes_nothing:
        from prebleexp.workloads.profiles import played

        workload = played(workload, cell.profile, cell.duration_s)
    if workload.adapter.any() and not cell.engine.adapts:
        engine = cell.names.get("engine", type(cell.engine).__name__)
        raise InvalidInput(
            f"workload.columns has an adapter, which is not valid with engine={engine}, which has none; take "
            "engine=vllm, or leave it out"
        )
    if not cell.adapters.changes_nothing:
        from prebleexp.workloads.adapters import given

        if workload.adapter.any():
            option = cell.names.get("adapters", "")
            raise InvalidInput(f"adapters={option} is not valid with workload.columns.adapter; take one of the two")
        workload = given(workload, cell.adapters, cell.seed)
    return workload
