"""Hands tasks to workers and takes back what became of them, also when workers die."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from prebleexp.errors import PrebleexpError
from prebleexp.experiment.backends import Backend, Group
from prebleexp.experiment.limits import memory_note
from prebleexp.experiment.provenance import provenance
from prebleexp.experiment.work import Attempt, Failure, Orders, Task, keep, work

BATCHES_PER_WORKER = 8
"""so that no worker is left with much when the others are done"""


def compute(
    tasks: Sequence[Task], backend: Backend, orders: Orders, admit: Callable[[Sequence[Task]], list[Task]]
) -> Iterator[Attempt]:
    """What became of each task, in any order. `admit` says, at the last moment and in any thread, which of some tasks
    are still to be done.

    A task that ends its worker has failed; the others go on. Raises PrebleexpError if results cannot be kept or the
    workers cannot be reached.
    """
    with _stopping() as stop, backend.engaged(tasks, orders.workers) as workers:
        _prepare(tasks)
        for group in backend.groups(tasks, workers):
            yield from _Handover(group, orders, admit, stop).results()


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """Threads that still work when the sweep is over look at this."""
    stop = threading.Event()
    try:
        yield stop
    finally:
        stop.set()


def _prepare(tasks: Sequence[Task]) -> None:
    from prebleexp.sim import simulate

    simulate.prepare({type(task.cell.policy) for task in tasks if task.cell.policy.compiled})


@dataclass
class _Handover:
    group: Group
    orders: Orders
    admit: Callable[[Sequence[Task]], list[Task]]
    stop: threading.Event
    left: dict[str, Task] = field(init=False)
    """tasks of which nothing has come back"""
    out: dict[int, list[Task]] = field(default_factory=dict)
    """batches that workers have"""
    trouble: list[Exception] = field(default_factory=list)
    """what went wrong while batches were given out, in whichever thread"""

    def __post_init__(self) -> None:
        self.left = {task.key: task for task in self.group.tasks}

    def results(self) -> Iterator[Attempt]:
        while self.left:
            try:
                yield from self._parallel(_batches(self.left.values(), self.group.workers), self.group.workers)
                return
            except PrebleexpError:
                raise
            except Exception:  # some worker ended, or could not take its tasks
                yield from self._after_a_death()

    def _parallel(self, batches: Sequence[list[Task]], workers: int) -> Iterator[Attempt]:
        from joblib import Parallel

        if not batches:
            return
        self.out.clear()
        # joblib would do the work of a single process in this one
        workers = min(workers, len(batches)) if self.group.joblib == "threading" else workers
        backend = {} if self.group.joblib == "dask" else {"backend": self.group.joblib}  # dask's is in force already
        parallel = Parallel(n_jobs=workers, return_as="generator_unordered", batch_size=1, **backend)
        for number, attempts in parallel(self._given_out(batches)):
            del self.out[number]
            for attempt in attempts:
                del self.left[attempt.key]
                yield attempt
        if self.trouble:
            raise self.trouble[0]

    def _given_out(self, batches: Iterable[list[Task]]) -> Iterator[Any]:
        from joblib import delayed

        stop = self.stop if self.group.joblib == "threading" else None
        for number, batch in enumerate(batches):
            try:
                admitted = self.admit(batch)
            except Exception as error:  # joblib calls this in threads of its own, where it would be lost
                self.trouble.append(error)
                return
            for key in {task.key for task in batch} - {task.key for task in admitted}:
                del self.left[key]
            if admitted:
                self.out[number] = admitted
                yield delayed(_numbered)(number, admitted, self.orders, stop)

    def _after_a_death(self) -> Iterator[Attempt]:
        """Which task it was is not known: of each batch that was out, the first without a result may be it, or, where
        results are handed back whole batches at a time, any. Each of these is tried alone."""
        suspects: list[Task] = []
        for batch in self.out.values():
            unfinished = [task for task in batch if not self._is_kept(task)]
            suspects += unfinished[:1] if self.orders.cache is not None else unfinished
            for task in batch:
                if task not in unfinished:
                    yield self._kept(task)
        for task in suspects or list(self.left.values()):
            try:
                yield from self._alone(task)
            except PrebleexpError:
                raise
            except Exception as error:
                del self.left[task.key]
                yield self._died(task, error)

    def _alone(self, task: Task) -> Iterator[Attempt]:
        """Not asked for again: it was admitted."""
        admit, self.admit = self.admit, list
        try:
            yield from self._parallel([[task]], 2)
        finally:
            self.admit = admit

    def _is_kept(self, task: Task) -> bool:
        cache = self.orders.cache
        return cache is not None and (cache.path(task.key).exists() or cache.failure_path(task.key).exists())

    def _kept(self, task: Task) -> Attempt:
        del self.left[task.key]
        cache = self.orders.cache
        assert cache is not None
        entry, failed = cache.get(task.key), cache.failure(task.key)
        if entry is not None:
            return Attempt(task.key, entry.metrics, None, entry.provenance)
        error = Failure(**failed.error) if failed else Failure("Damaged", "what was kept of it is damaged")
        return Attempt(task.key, None, error, failed.provenance if failed else {})

    def _died(self, task: Task, error: Exception) -> Attempt:
        codes = re.search(r"\{(.*?)\}", str(error))
        how = f" ({codes[1]})" if codes else ""
        if type(error).__name__ in ("TerminatedWorkerError", "BrokenProcessPool", "KilledWorker"):
            message = f"the process that ran it ended{how}"
            if "KILL" in how:
                message += f", as the system does when memory runs out: {memory_note(self.orders.workers)}"
            failure = Failure("WorkerDied", message, str(error))
        elif isinstance(error, OSError):
            raise PrebleexpError(f"the workers cannot be reached any more: {error}") from error
        else:
            failure = Failure(type(error).__name__, str(error))
        attempt = Attempt(task.key, None, failure, provenance())
        return attempt if self.orders.cache is None else keep(attempt, task, self.orders.cache)


def _numbered(
    number: int, tasks: list[Task], orders: Orders, stop: threading.Event | None
) -> tuple[int, list[Attempt]]:
    return number, work(tasks, orders, stop)


def _batches(tasks: Iterable[Task], workers: int) -> list[list[Task]]:
    """Runs that serve the same requests together, so that these are drawn once; but enough batches for all workers."""
    streams: dict[tuple[object, ...], list[Task]] = {}
    for task in tasks:
        streams.setdefault(task.cell.stream, []).append(task)
    size = math.ceil(sum(map(len, streams.values())) / (BATCHES_PER_WORKER * workers))
    return [batch[i : i + size] for batch in streams.values() for i in range(0, len(batch), size)]
