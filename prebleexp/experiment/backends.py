"""Where runs are computed: in this process, in processes of this machine, or on the workers of a Dask cluster."""

from __future__ import annotations

import inspect
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from prebleexp.checks import is_integer, require
from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.experiment.work import Attempt, Task
from prebleexp.sources import PACKAGE

PATIENCE_S = 24 * 3600
"""for the first worker of a queue of jobs"""
CONNECT_S = 10
"""for a scheduler to answer"""
AHEAD = 2
"""batches that each worker of a cluster has or is about to get"""
Call = tuple[Callable[..., "Done"], tuple[Any, ...]]
"""a function with its arguments, the first of them the number of a batch"""
Done = tuple[int, "list[Attempt] | BaseException"]
"""the number of a batch and what became of it, or why nothing came back"""


@dataclass(frozen=True)
class Crew:
    """Workers that stand ready for tasks."""

    tasks: Sequence[Task]
    workers: int
    run: Callable[[Iterable[Call], int], Iterator[Done]]
    """calls are taken one by one, as workers get free; how many at a time. Raises if it is not known whose fault it
    was that a worker ended."""
    threads: bool = False
    """of this process, which can be told to stop"""


@dataclass(frozen=True)
class Backend:
    """Base of all. A backend changes no result."""

    elsewhere: ClassVar[bool] = False
    """whether workers may see other files: then they hand back what the parent keeps"""

    @contextmanager
    def engaged(self, tasks: Sequence[Task], workers: int) -> Iterator[list[Crew]]:
        """While workers stand ready. Raises PrebleexpError if there are none."""
        raise NotImplementedError
        yield

    def job_script(self) -> str | None:
        """What is submitted to a queue of jobs, if anything is."""
        return None


@dataclass(frozen=True)
class Threads(Backend):
    """Threads of this process for compiled policies, which run without the GIL; processes for plain Python."""

    @contextmanager
    def engaged(self, tasks: Sequence[Task], workers: int) -> Iterator[list[Crew]]:
        alone = workers == 1 or len(tasks) == 1
        light = [task for task in tasks if task.cell.policy.compiled or alone]
        heavy = [task for task in tasks if not (task.cell.policy.compiled or alone)]
        yield [Crew(light, workers, _in_threads, threads=True), Crew(heavy, workers, _in_processes)]


@dataclass(frozen=True)
class Loky(Backend):
    """Processes for all: a run that crashes takes only its process with it."""

    @contextmanager
    def engaged(self, tasks: Sequence[Task], workers: int) -> Iterator[list[Crew]]:
        yield [Crew(tasks, workers, _in_processes)]


@dataclass(frozen=True)
class Cluster(Backend):
    """Base of those whose workers may be on other machines. They need the same version of this package; a policy's own
    file is sent to them."""

    elsewhere: ClassVar[bool] = True

    @contextmanager
    def engaged(self, tasks: Sequence[Task], workers: int) -> Iterator[list[Crew]]:
        with self.client(workers) as client:
            for file in _own_modules(tasks):
                client.upload_file(str(file))
            if not client.scheduler_info()["workers"]:
                address = client.scheduler_info()["address"]
                print(f"prebleexp: no worker yet at {address}: waiting for one", file=sys.stderr, flush=True)
            client.wait_for_workers(1, timeout=PATIENCE_S)
            yield [Crew(tasks, sum(client.ncores().values()), lambda calls, at_once: _on_dask(client, calls, at_once))]

    @contextmanager
    def client(self, workers: int) -> Iterator[Any]:
        """Of Dask, with workers or a promise of some."""
        raise NotImplementedError
        yield


@dataclass(frozen=True)
class Dask(Cluster):
    """The workers of a running Dask scheduler; without its address, of one started here."""

    address: str | None = None
    """such as tcp://host:8786"""

    def __post_init__(self) -> None:
        if self.address is not None and "://" not in str(self.address):
            raise InvalidInput(f"backend.address={self.address} is not valid; it is like tcp://host:8786")

    @contextmanager
    def client(self, workers: int) -> Iterator[Any]:
        distributed = _needed("distributed")
        try:
            if self.address is None:
                quiet = {"dashboard_address": ":0", "silence_logs": logging.ERROR}
                client = distributed.Client(n_workers=workers, threads_per_worker=1, **quiet)
                # what is killed while it starts is not started anew by its nanny
                client.cluster.adapt(minimum=workers, maximum=workers)
            else:
                client = distributed.Client(self.address, timeout=CONNECT_S)
        except (OSError, TimeoutError) as error:
            raise PrebleexpError(f"backend.address={self.address}: no Dask scheduler answers there") from error
        with client:
            yield client


@dataclass(frozen=True)
class Slurm(Cluster):
    """Workers that are jobs of a Slurm cluster, started for this sweep and ended with it."""

    jobs: int = 4
    """submitted for the sweep"""
    cores: int = 8
    """of each job; a worker each"""
    memory: str = "16GB"
    """of each job"""
    walltime: str = "01:00:00"
    """of each job, after which Slurm ends it"""
    queue: str | None = None
    """the partition; null: the cluster's default"""
    account: str | None = None
    """that is charged; null: the cluster's default"""
    extra: tuple[str, ...] = ()
    """further lines of the job script, such as "--constraint=zen4" """

    def __post_init__(self) -> None:
        for name in ("jobs", "cores"):
            value = getattr(self, name)
            require(is_integer(value, 1), f"backend.{name}", value, "an integer of 1 or more")

    @contextmanager
    def client(self, workers: int) -> Iterator[Any]:
        distributed = _needed("distributed")
        with self._cluster() as cluster:
            cluster.scale(jobs=self.jobs)
            with distributed.Client(cluster) as client:
                yield client

    def job_script(self) -> str | None:
        job = _needed("dask_jobqueue").slurm.SLURMJob(scheduler="tcp://SCHEDULER:PORT", **self._of_a_job())
        return str(job.job_script())

    def _cluster(self) -> Any:
        return _needed("dask_jobqueue").SLURMCluster(scheduler_options={"dashboard_address": ":0"}, **self._of_a_job())

    def _of_a_job(self) -> dict[str, Any]:
        return {
            "cores": self.cores,
            "processes": self.cores,
            "memory": self.memory,
            "walltime": self.walltime,
            "queue": self.queue,
            "account": self.account,
            "job_extra_directives": list(self.extra),
        }


def _in_threads(calls: Iterable[Call], at_once: int) -> Iterator[Done]:
    if at_once == 1:
        return (function(*arguments) for function, arguments in calls)
    return _by_joblib(calls, at_once, "threading")


def _in_processes(calls: Iterable[Call], at_once: int) -> Iterator[Done]:
    # a worker that stops because it was idle or has grown is replaced. Where warnings are errors, saying so would end
    # the thread that replaces it, and the sweep would wait for ever. For good: that thread outlives the sweep
    warnings.filterwarnings("ignore", "A worker stopped while some jobs were given", UserWarning)
    return _by_joblib(calls, max(at_once, 2), "loky")  # it would do the work of a single process in this one


def _by_joblib(calls: Iterable[Call], at_once: int, backend: str) -> Iterator[Done]:
    from joblib import Parallel, delayed

    parallel = Parallel(n_jobs=at_once, backend=backend, return_as="generator_unordered", batch_size=1)
    return parallel(delayed(function)(*arguments) for function, arguments in calls)  # type: ignore[no-any-return]


def _on_dask(client: Any, calls: Iterable[Call], at_once: int) -> Iterator[Done]:
    """Not by joblib's backend for Dask, which waits for ever for a task that killed its worker."""
    from asyncio import CancelledError

    numbers: dict[Any, int] = {}

    def submit(count: int) -> Iterator[Any]:
        for function, arguments in islice(left, count):
            future = client.submit(function, *arguments, pure=False)
            numbers[future] = arguments[0]
            yield future

    left = iter(calls)
    futures = _needed("distributed").as_completed(submit(AHEAD * at_once))
    try:
        for future in futures:
            number = numbers.pop(future)
            try:
                yield future.result()
            except (Exception, CancelledError) as error:  # what is cancelled has lost its scheduler
                yield number, error
            for another in submit(1):
                futures.add(another)
    finally:
        client.cancel(list(numbers))


def _own_modules(tasks: Sequence[Task]) -> set[Path]:
    """The files of classes that are neither this package's nor installed."""
    kinds = {type(spec) for task in tasks for spec in task.cell.parts.values()}
    files = {Path(inspect.getfile(kind)).resolve() for kind in kinds if "." not in kind.__module__}
    return {file for file in files if not file.is_relative_to(PACKAGE) and "site-packages" not in file.parts}


def _needed(module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InvalidInput("backend=dask and backend=slurm need more: pip install 'prebleexp[cluster]'") from error
