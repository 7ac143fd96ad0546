"""Hands tasks to workers and takes back what became of them, also when workers die."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from prebleexp.errors import PrebleexpError
from prebleexp.experiment.backends import Backend, Call, Crew, Done
from prebleexp.experiment.compiling import compiling, missing
from prebleexp.experiment.limits import memory_note
from prebleexp.experiment.provenance import provenance
from prebleexp.experiment.work import Attempt, Failure, Orders, Task, keep, ready, work

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
    with _stopping() as stop, backend.engaged(tasks, orders.workers) as crews:
        _prepare(tasks, orders.check)
        for crew in crews:
            yield from _Handover(crew, orders, admit, stop).results()


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """Threads that still work when the sweep is over look at this."""
    stop = threading.Event()
    try:
        yield stop
    finally:
        stop.set()


def _prepare(tasks: Sequence[Task], check: bool) -> None:
    """Before there are threads or processes that all would do so."""
    with compiling(missing([task.cell for task in tasks], check)):
        ready(tasks, check)


@dataclass
class _Handover:
    crew: Crew
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
        self.left = {task.key: task for task in self.crew.tasks}

    def results(self) -> Iterator[Attempt]:
        while self.left:
            try:
                yield from self._handed_over(_batches(self.left.values(), self.crew.workers))
                return
            except PrebleexpError:
                raise
            except Exception:  # some worker ended, and it is not known which
                yield from self._after_a_death()

    def _handed_over(self, batches: Sequence[list[Task]]) -> Iterator[Attempt]:
        self.out.clear()
        lost: list[tuple[list[Task], BaseException]] = []
        for number, done in self.crew.run(self._given_out(batches), min(self.crew.workers, len(batches))):
            batch = self.out.pop(number)
            if isinstance(done, BaseException):
                lost.append((batch, done))
                continue
            for attempt in done:
                del self.left[attempt.key]
                yield attempt
        if self.trouble:
            raise self.trouble[0]
        for batch, error in lost:
            if len(batches) == len(batch) == 1:
                yield self._died(batch[0], error)
            else:  # a worker may have had others too when it died: only what is tried alone is known to be at fault
                for task in batch:
                    yield from self._handed_over([[task]])

    def _given_out(self, batches: Iterable[list[Task]]) -> Iterator[Call]:
        stop = self.stop if self.crew.threads else None
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
                yield _numbered, (number, admitted, self.orders, stop)

    def _after_a_death(self) -> Iterator[Attempt]:
        """Of each batch that was out, the first run without a result may be it. Each of these is tried alone."""
        suspects: list[Task] = []
        for batch in list(self.out.values()):
            unfinished = [task for task in batch if not self._is_kept(task)]
            suspects += unfinished[:1]
            for task in batch:
                if task not in unfinished:
                    yield self._kept(task)
        for task in suspects or list(self.left.values()):
            try:
                yield from self._handed_over([[task]])
            except PrebleexpError:
                raise
            except Exception as error:
                yield self._died(task, error)

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

    def _died(self, task: Task, error: BaseException) -> Attempt:
        del self.left[task.key]
        codes = re.search(r"\{(.*?)\}", str(error))
        how = f" ({codes[1]})" if codes else ""
        if type(error).__name__ in ("TerminatedWorkerError", "BrokenProcessPool", "KilledWorker"):
            message = f"the process that ran it ended{how}"
            if "KILL" in how:
                message += f", as the system does when memory runs out: {memory_note(self.orders.workers)}"
            failure = Failure("WorkerDied", message, str(error))
        elif isinstance(error, OSError) or type(error).__name__ == "CancelledError":  # asyncio's, if that is loaded
            raise PrebleexpError(f"the workers cannot be reached any more: {error}") from error
        else:
            failure = Failure(type(error).__name__, str(error))
        attempt = Attempt(task.key, None, failure, provenance(task.cell))
        return attempt if self.orders.cache is None else keep(attempt, task, self.orders.cache)


def _numbered(number: int, tasks: list[Task], orders: Orders, stop: threading.Event | None) -> Done:
    return number, work(tasks, orders, stop)


def _batches(tasks: Iterable[Task], workers: int) -> list[list[Task]]:
    """Runs that serve the same requests together, so that these are drawn once; but enough batches for all workers."""
    streams: dict[tuple[object, ...], list[Task]] = {}
    for task in tasks:
        streams.setdefault(task.cell.stream, []).append(task)
    size = math.ceil(sum(map(len, streams.values())) / (BATCHES_PER_WORKER * workers))
    return [batch[i : i + size] for batch in streams.values() for i in range(0, len(batch), size)]
