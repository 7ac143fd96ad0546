"""`prebleexp.plan`: how many GPUs a load takes, or how large a load a cluster bears."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prebleexp import publish
from prebleexp.api import html
from prebleexp.api.picture import Picture
from prebleexp.api.refusals import BY_SWEEP, refuse
from prebleexp.launch import asked_plan, overrides, planner
from prebleexp.launch.naming import page
from prebleexp.launch.planner import Planner
from prebleexp.planning.beside import Beside
from prebleexp.planning.planned import Planned, rows
from prebleexp.report import plan_bars, plan_figure, planned

if TYPE_CHECKING:
    import pandas as pd


class Plan:
    """What a plan found. Nothing is computed any more."""

    def __init__(self, made: Planner) -> None:
        self._made = made

    @property
    def found(self) -> Sequence[Planned]:
        """Each contender's answer, with its verdict, interval and bracket."""
        return tuple(self._made.found)

    @property
    def sentence(self) -> str:
        return planned.sentence(self._made.found)

    @property
    def caveats(self) -> Sequence[str]:
        """What a reader must know of the answers, each once."""
        return tuple(planned.warnings(self._made.found, self._made.left_out))

    @property
    def beside(self) -> Beside | None:
        """Of the best: what will be seen, the answers if steps are slower or faster, the greatest load, what is kept of
        a greater load and after the loss of a replica; None where there is no answer, or
        nothing but the answer was asked for."""
        return self._made.beside

    def frame(self) -> pd.DataFrame:
        """One row a contender, the best first: its place on the axes, "rps" with "rps_low" and "rps_high", or "gpus"
        (that surely are enough) and "gpus_likely" (on average), "replicas", "verdict", how it was found, GPU-hours and
        cost of a million requests, and "ratio" to the best with its interval."""
        import pandas as pd

        return pd.DataFrame(rows(self._made.found))

    def figure(self) -> Picture:
        """What is kept against what was tried."""
        return Picture(plan_figure.figure(self._made.found))

    def bars(self) -> Picture:
        """The answer of each contender, with its interval."""
        return Picture(plan_bars.figure(self._made.found))

    def __repr__(self) -> str:
        return f"<prebleexp.Plan {self.sentence}>"

    def _repr_html_(self) -> str:
        found = self._made.found
        caveats = "".join(html.paragraph(f"{one[0].upper()}{one[1:]}.") for one in self.caveats)
        return html.paragraph(self.sentence) + html.table(planned.heads(found), planned.lines(found)) + caveats


def plan(
    *given: str | Sequence[str] | Mapping[str, Any],
    tol: float = 0.05,
    seeds: int = 8,
    most_seeds: int = 64,
    requests: int | None = None,
    most_requests: int = 200_000,
    price_per_gpu_hour: float | Mapping[str, float] | None = None,
    answer_only: bool = False,
    **settings: Any,
) -> Plan:
    """The greatest load of a cluster, `plan(gpus=8, policy=["lor", "e2"], **{"slo.ttft_s": 0.5})`, or with `rps=` in
    place of `gpus=` the fewest GPUs for a load, so that a service level is kept; for every combination of values.

    `tol` is half the width of the interval that is asked for, as a share of the answer; `seeds` request streams at
    first, `most_seeds` where they differ too much; `requests` of a run, else as many as show enough misses;
    `price_per_gpu_hour` is of one GPU, or of each kind, `{"h100": 2.5, "h200": 3.5}`; `answer_only` leaves out
    `Plan.beside`, which takes about as many runs again. Runs are kept in the cache as all others. Raises
    InvalidInput for names that do not exist and values that are not valid,
    PrebleexpError if a run fails.
    """
    lines = [line for one in (*given, settings) for line in overrides.lines(one)]
    refuse(lines, BY_SWEEP)
    own = {
        "tol": tol,
        "seeds": seeds,
        "most_seeds": most_seeds,
        "requests": requests,
        "most_requests": most_requests,
        "price_per_gpu_hour": price_per_gpu_hour,
        "answer_only": answer_only,
    }
    made = planner.plan(lines, asked_plan.asked(lines, own))
    name = page("plan", lines)
    publish.load(made, name, f"python -m prebleexp plan {shlex.join(lines)}")
    return Plan(made)
