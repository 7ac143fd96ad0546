"""What a worker does: compute runs, keep each as soon as it is finished, and say what failed."""

from __future__ import annotations

import hashlib
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

from prebleexp.experiment import remeasured
from prebleexp.experiment.cache import Cache, Entry, FailedRun
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.key import contents, differences, digest
from prebleexp.experiment.limits import TimeLimitExceeded, limited, memory_note
from prebleexp.experiment.provenance import provenance
from prebleexp.experiment.runs import NOTHING, Run, draw, requests_parquet, run, simulate_cell
from prebleexp.history_tables import Kept, kept
from prebleexp.policies.base import Policy
from prebleexp.sim.records import View
from prebleexp.sim.types import Workload
from prebleexp.warm.base import COLD


@dataclass(frozen=True)
class Task:
    """A run that is to be computed."""

    cell: Cell
    key: str
    content: Mapping[str, object]
    """what the key is a hash of"""
    keep_requests: bool


@dataclass(frozen=True)
class Failure:
    """The exception that ended a run: class, message, traceback."""

    type: str
    message: str
    traceback: str = ""


@dataclass(frozen=True)
class Attempt:
    """What became of a task: metrics, or an error."""

    key: str
    metrics: Mapping[str, Any] | None
    error: Failure | None
    provenance: Mapping[str, Any]
    requests: bytes | None = None
    """as Parquet, if they are yet to be kept"""
    history: Kept = field(default_factory=dict)
    """what became of its GPUs, if it is yet to be kept"""


@dataclass(frozen=True)
class Orders:
    """How tasks are to be done."""

    cache: Cache | None
    """where to keep them; None: hand them back"""
    time_limit_s: float | None
    """for each run"""
    workers: int
    """how many work at a time on this machine"""
    check: bool = True
    """whether plugs that are not the package's look at every index"""


def work(tasks: Sequence[Task], orders: Orders, stop: threading.Event | None = None) -> list[Attempt]:
    """Compute runs that serve the same requests, which are drawn once.

    A run's own errors are in its attempt. Raises PrebleexpError if what is finished cannot be kept.
    """
    if orders.cache is None or (stop is None and not any(map(_came_along, tasks))):
        # a process of its own has loaded files as they are by now
        strange = _strange(tasks)
        if strange is not None:
            return [Attempt(task.key, None, strange, provenance(task.cell)) for task in tasks]
    attempts = []
    workload: Workload | None = None

    def compute(cell: Cell, check: Callable[[], None]) -> Run:
        nonlocal workload
        check()
        workload = draw(cell) if workload is None else workload
        return run(cell, workload, check, check=orders.check)

    for task in tasks:
        try:
            ready([task], orders.check)
            finished = limited(partial(compute, task.cell), orders.time_limit_s, stop)
            requests = requests_parquet(finished) if task.keep_requests else None
        except (Exception, SystemExit) as error:  # a policy may call sys.exit
            attempt = Attempt(task.key, None, _failure(error, orders), provenance(task.cell))
        else:
            about = {"seconds": finished.seconds} | provenance(task.cell)
            groups = [(one.replicas, one.role) for one in task.cell.cluster.groups]
            history = kept(finished.outcome.history, groups, task.keep_requests)
            attempt = Attempt(task.key, finished.metrics, None, about, requests, history)
        if orders.cache is not None:
            attempt = keep(attempt, task, orders.cache)
        attempts.append(attempt)
    return attempts


def ready(tasks: Sequence[Task], check: bool) -> None:
    """Load the simulator and what is compiled of the cells, or compile them: no run's time goes on that."""
    for task in tasks:
        plugs = (type(task.cell.policy), type(task.cell.engine), *(type(one.hardware) for one in task.cell.kinds))
        if (plugs, check) in _READY:
            continue
        # what a policy in plain Python does takes its run's time, and may not end this process
        policy = task.cell.policy if task.cell.policy.compiled else _Absent()
        with suppress(Exception):  # a run says itself what is wrong with it
            simulate_cell(replace(task.cell, policy=policy, horizon="stop", warm=COLD), NOTHING, check=check)
        _READY.add((plugs, check))


class _Absent(Policy):
    """A policy that is never asked, since no request arrives."""

    compiled: ClassVar[bool] = False

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        raise AssertionError


_READY: set[tuple[tuple[type[Any], ...], bool]] = set()
"""what is loaded in this process"""


def keep(attempt: Attempt, task: Task, cache: Cache) -> Attempt:
    """Write what became of a task. Raises PrebleexpError if the disk refuses."""
    if attempt.error is not None:
        cache.put_failure(FailedRun(task.key, task.content, asdict(attempt.error), attempt.provenance))
        return attempt
    assert attempt.metrics is not None
    requests = attempt.requests
    sha256 = None if requests is None else hashlib.sha256(requests).hexdigest()
    entry = Entry(task.key, task.content, attempt.metrics, attempt.provenance, sha256, attempt.history)
    cache.put(entry, requests)
    if requests is not None:
        remeasured.note(cache, task.cell, task.key, task.content)
    return Attempt(task.key, attempt.metrics, None, attempt.provenance)


def _failure(error: BaseException, orders: Orders) -> Failure:
    message = str(error)
    if isinstance(error, MemoryError):
        message = f"{message or 'out of memory'} ({memory_note(orders.workers)})"
    kind = "TimeLimit" if isinstance(error, TimeLimitExceeded) else type(error).__name__
    return Failure(kind, message, "".join(traceback.format_exception(error)))


def _came_along(task: Task) -> bool:
    """Whether a script's own class is part of it: that is sent as it is."""
    return any(type(spec).__module__ == "__main__" for spec in task.cell.parts.values())


def _strange(tasks: Sequence[Task]) -> Failure | None:
    """On another machine, the same configuration may stand for other code or other files."""
    for task, here in zip(tasks, contents([task.cell for task in tasks]), strict=True):
        if digest(here) != task.key:
            path, there, ours = differences(task.content, here)[0]
            return Failure("OtherCode", f"the worker would compute another run: {path} is {ours} there, not {there}")
    return None
