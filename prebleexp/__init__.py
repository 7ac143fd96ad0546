"""prebleexp: a laboratory for one question, to which GPU should an LLM request go?

>>> import prebleexp
>>> result = prebleexp.run(gpus=2, rps=2, duration_s=5, policy="lor")
>>> result.metrics["n_finished"]
10
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from prebleexp.experiment.cell import Cell
    from prebleexp.experiment.runs import Run

__all__ = ["Result", "run"]


@dataclass(frozen=True)
class Result:
    """One run."""

    cell: Cell
    """its configuration"""
    computed: Run
    """all its arrays"""

    @property
    def metrics(self) -> dict[str, int | float | None]:
        """Names are in `prebleexp.metrics.METRICS`; seconds and tokens."""
        return self.computed.metrics

    @cached_property
    def requests(self) -> pd.DataFrame:
        """One row a request, in order of arrival."""
        import pandas as pd

        from prebleexp.experiment.runs import requests_columns

        return pd.DataFrame(requests_columns(self.computed))


def run(**settings: Any) -> Result:
    """Simulate one configuration, given as on the command line: `run(gpus=8, rps=64, policy="lor")`.

    A field of a spec is written `**{"policy.seed": 7}`; `policy` may also be a `Policy` object. Not cached.
    Raises InvalidInput for names that do not exist and values that are not valid.
    """
    from prebleexp.experiment import runs
    from prebleexp.launch import configure
    from prebleexp.policies.base import Policy

    policy = settings.pop("policy") if isinstance(settings.get("policy"), Policy) else None
    job = configure.job([f"{key}={'null' if value is None else value}" for key, value in settings.items()])
    cell = job.cells[0]
    if policy is not None:
        cell = replace(cell, policy=policy, names={**cell.names, "policy": type(policy).__name__})
    return Result(cell, runs.run(cell, check=job.settings.check))
