"""`prebleexp.run`: one run, from the cache or computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prebleexp.api import html
from prebleexp.api.refusals import BY_RUN, SEVERAL, refuse
from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.experiment import runs
from prebleexp.experiment.backends import Threads
from prebleexp.experiment.cache import Cache
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.key import key
from prebleexp.experiment.limits import limited
from prebleexp.experiment.results import run_all
from prebleexp.experiment.work import Failure
from prebleexp.launch import configure, overrides, tables
from prebleexp.launch.configure import Settings
from prebleexp.policies.base import Policy
from prebleexp.report.wording import plain

if TYPE_CHECKING:
    import pandas as pd

    from prebleexp.experiment.runs import Run


@dataclass(frozen=True, repr=False, eq=False)
class Result:
    """One run: `metrics`, `requests`, and what it was of."""

    cell: Cell
    """its configuration"""
    metrics: Mapping[str, int | float | None]
    """by the names of `prebleexp.metrics.METRICS`; seconds and tokens; None where there is nothing to average"""
    key: str | None
    """of the cache; None if it is not kept there"""
    cached: bool
    """whether it was there already"""
    _check: bool
    _requests: Path | None = None
    _computed: Run | None = None

    @cached_property
    def requests(self) -> pd.DataFrame:
        """One row a request, in order of arrival: docs/tables.md names the columns. Seconds and tokens, NaN where there
        is none."""
        import pandas as pd

        if self._requests is not None and self._requests.is_file():
            return pd.read_parquet(self._requests)
        return pd.DataFrame(runs.requests_columns(self.computed))

    @cached_property
    def computed(self) -> Run:
        """All its arrays. The cache does not have them: a run that comes from there is computed again, and is the
        same."""
        return self._computed or runs.run(self.cell, check=self._check)

    def __repr__(self) -> str:
        origin = "not kept" if self.key is None else f"{self.key[:12]}{', from the cache' if self.cached else ''}"
        return f"<prebleexp.Result {self._about()}: {origin}>"

    def _repr_html_(self) -> str:
        lines = [[name, tables.number(value)] for name, value in self.metrics.items() if value is not None]
        return html.paragraph(self._about()) + html.table(("metric", "value"), lines)

    def _about(self) -> str:
        cell = self.cell
        load = {"rps": cell.load.rps, "users": cell.load.users}
        numbers = {"gpus": cell.gpus, **load, "seed": cell.seed if cell.draws else None}
        said = " ".join(f"{name}={plain(value)}" for name, value in numbers.items() if value is not None)
        return f"{cell.names['policy']} {said}"


def run(**settings: Any) -> Result:
    """Simulate one configuration, set as on the command line: `run(gpus=8, rps=64, policy="lor")`.

    A field of a spec is written `**{"policy.seed": 7}`, a group of your own `**{"+group": "option"}`. `policy` may also
    be a `Policy` object. The run is looked up in the cache and kept there, under the same key as on the command line,
    in the folder `cache_dir` ("cache"); `cache_dir=None` computes it anew and keeps nothing. So does a `Policy` object
    whose class has no source file, as one defined in a notebook's cell: nothing tells its versions apart.

    Raises InvalidInput for names that do not exist, values that are not valid and settings that mean nothing here;
    PrebleexpError if the run failed, with its traceback as a note.
    """
    policy = settings.get("policy")
    given = dict(settings)
    if isinstance(policy, Policy):
        del given["policy"]
        fields = [name for name in given if name.startswith("policy.")]
        if fields:
            raise InvalidInput(f"{fields[0]}: policy is an object, which has its fields")
    kept = given.get("cache_dir", "") is not None
    if not kept:
        del given["cache_dir"]
    for name, value in given.items():
        if isinstance(value, list | tuple | range) and name.isidentifier():
            raise InvalidInput(f"{name}={list(value)}: {SEVERAL}")
    lines = [overrides.one(name, value) for name, value in given.items()]
    refuse(lines, BY_RUN)
    job = configure.job(lines)
    if len(job.cells) > 1 or job.settings.precision or job.settings.parts:
        raise InvalidInput(f"{' '.join(lines)} is more than one run: {SEVERAL}")
    cell = job.cells[0]
    if isinstance(policy, Policy):
        cell = replace(cell, policy=policy, names={**cell.names, "policy": type(policy).__name__})
        kept = kept and _has_key(cell)
    return _kept(cell, job.settings) if kept else _computed(cell, job.settings)


def _has_key(cell: Cell) -> bool:
    try:
        key(cell)
    except InvalidInput:
        return False
    return True


def _kept(cell: Cell, settings: Settings) -> Result:
    cache = _cache(settings.cache_dir)
    (found,) = run_all(
        [cell],
        cache,
        workers=settings.workers,
        backend=settings.backend,
        keep_requests=settings.keep_requests,
        retry=settings.retry,
        time_limit_s=settings.time_limit_s,
        check=settings.check,
    )
    if found.error is not None:
        raise _error(found.error)
    assert found.metrics is not None
    return Result(cell, found.metrics, found.key, found.cached, settings.check, cache.requests_path(found.key))


def _computed(cell: Cell, settings: Settings) -> Result:
    if not isinstance(settings.backend, Threads):
        name = type(settings.backend).__name__.lower()
        raise InvalidInput(f"backend={name}: a run that is not kept is computed in this process")
    simulate = partial(_simulate, cell, settings.check)
    made = limited(simulate, settings.time_limit_s)
    return Result(cell, made.metrics, None, False, settings.check, _computed=made)


def _simulate(cell: Cell, check: bool, on_pause: Callable[[], None]) -> Run:
    return runs.run(cell, on_pause=on_pause, check=check)


def _cache(folder: Path) -> Cache:
    """Opening a cache looks all of it over for what dead writers left: once for each folder."""
    folder = folder.absolute()
    known = _CACHES.get(folder)
    if known is None or known.read_only or not known.runs.is_dir():
        known = _CACHES[folder] = Cache(folder)
    return known


_CACHES: dict[Path, Cache] = {}


def _error(failure: Failure) -> PrebleexpError:
    if failure.type == InvalidInput.__name__:
        return InvalidInput(failure.message)
    said = "" if failure.type == PrebleexpError.__name__ else f"{failure.type}: "
    error = PrebleexpError(said + failure.message)
    error.add_note(failure.traceback)
    return error
