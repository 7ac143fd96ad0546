"""Where runs are computed: in this process, in processes of this machine, or on the workers of a Dask cluster."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.experiment.cell import SPECS
from prebleexp.experiment.key import PACKAGE
from prebleexp.experiment.work import Task

PATIENCE_S = 24 * 3600
"""for the first worker of a queue of jobs"""


@dataclass(frozen=True)
class Group:
    """Tasks that go the same way."""

    tasks: Sequence[Task]
    joblib: str
    """joblib's name of that way"""
    workers: int


@dataclass(frozen=True)
class Backend:
    """Base of all. A backend changes no result."""

    elsewhere: ClassVar[bool] = False
    """whether workers may see other files: then they hand back what the parent keeps"""

    @contextmanager
    def engaged(self, tasks: Sequence[Task], workers: int) -> Iterator[int]:
        """While workers stand ready; gives how many. Raises PrebleexpError if there are none."""
        yield workers

    def groups(self, tasks: Sequence[Task], workers: int) -> list[Group]:
        raise NotImplementedError

    def job_script(self) -> str | None:
        """What is submitted to a queue of jobs, if anything is."""
        return None


@dataclass(frozen=True)
class Threads(Backend):
    """Threads of this process for compiled policies, which run without the GIL; processes for plain Python."""

    def groups(self, tasks: Sequence[Task], workers: int) -> list[Group]:
        alone = workers == 1 or len(tasks) == 1
        light = [task for task in tasks if task.cell.policy.compiled or alone]
        heavy = [task for task in tasks if not (task.cell.policy.compiled or alone)]
        return [Group(light, "threading", workers), Group(heavy, "loky", workers)]


@dataclass(frozen=True)
class Loky(Backend):
    """Processes for all: a run that crashes takes only its process with it."""

    def groups(self, tasks: Sequence[Task], workers: int) -> list[Group]:
        return [Group(tasks, "loky", max(workers, 2))]  # joblib does the work of a single one in this process


@dataclass(frozen=True)
class Cluster(Backend):
    """Base of those whose workers may be on other machines."""

    elsewhere: ClassVar[bool] = True

    def groups(self, tasks: Sequence[Task], workers: int) -> list[Group]:
        return [Group(tasks, "dask", workers)]


@dataclass(frozen=True)
class Dask(Cluster):
    """The workers of a running Dask scheduler; without its address, of one started here. They need the same version of
    this package; a policy's own file is sent to them."""

    address: str | None = None
    """such as tcp://host:8786"""

    def __post_init__(self) -> None:
        if self.address is not None and "://" not in str(self.address):
            raise InvalidInput(f"backend.address={self.address} is not valid; it is like tcp://host:8786")

    @contextmanager
    def engaged(self, tasks: Sequence[Task], workers: int) -> Iterator[int]:
        distributed = _needed("distributed")
        try:
            if self.address is None:
                client = distributed.Client(n_workers=workers, threads_per_worker=1, dashboard_address=None)
            else:
                client = distributed.Client(self.address, timeout=10)
        except (OSError, TimeoutError) as error:
            raise PrebleexpError(f"backend.address={self.address}: no Dask scheduler answers there") from error
        with client:
            yield from _with_workers(client, tasks)


@dataclass(frozen=True)
class Slurm(Cluster):
    """Workers that are jobs of a Slurm cluster, started for this sweep and ended with it."""

    jobs: int = 4
    cores: int = 8
    """of each job; a worker each"""
    memory: str = "16GB"
    """of each job"""
    walltime: str = "01:00:00"
    queue: str | None = None
    account: str | None = None
    extra: tuple[str, ...] = ()
    """further lines of the job script, such as "--constraint=zen4" """

    def __post_init__(self) -> None:
        for name in ("jobs", "cores"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InvalidInput(f"backend.{name}={value} is not valid; it must be an integer of 1 or more")

    @contextmanager
    def engaged(self, tasks: Sequence[Task], workers: int) -> Iterator[int]:
        distributed = _needed("distributed")
        with self._cluster() as cluster:
            cluster.scale(jobs=self.jobs)
            with distributed.Client(cluster) as client:
                yield from _with_workers(client, tasks)

    def job_script(self) -> str | None:
        with self._cluster() as cluster:
            return str(cluster.job_script())

    def _cluster(self) -> Any:
        return _needed("dask_jobqueue").SLURMCluster(
            cores=self.cores,
            processes=self.cores,
            memory=self.memory,
            walltime=self.walltime,
            queue=self.queue,
            account=self.account,
            job_extra_directives=list(self.extra),
            scheduler_options={"dashboard_address": None},
        )


def _with_workers(client: Any, tasks: Sequence[Task]) -> Iterator[int]:
    from joblib import parallel_config

    for file in _own_modules(tasks):
        client.upload_file(str(file))
    with parallel_config(backend="dask", client=client, wait_for_workers_timeout=PATIENCE_S):
        client.wait_for_workers(1, timeout=PATIENCE_S)
        yield math.ceil(sum(client.ncores().values()))


def _own_modules(tasks: Sequence[Task]) -> set[Path]:
    """The files of classes that are neither this package's nor installed."""
    kinds = {type(getattr(task.cell, name)) for task in tasks for name in SPECS}
    files = {Path(inspect.getfile(kind)).resolve() for kind in kinds if "." not in kind.__module__}
    return {file for file in files if not file.is_relative_to(PACKAGE) and "site-packages" not in file.parts}


def _needed(module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InvalidInput("backend=dask and backend=slurm need more: pip install 'prebleexp[cluster]'") from error
