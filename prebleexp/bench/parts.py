"""`prebleexp bench parts`: microseconds of small parts of a command, each by itself."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from prebleexp import indexing, metrics, store
from prebleexp.bench import pages
from prebleexp.bench.cpu import least_s
from prebleexp.bench.table import LESS, Row, Table
from prebleexp.experiment import runs
from prebleexp.experiment.cache import Cache, Entry
from prebleexp.experiment.key import key
from prebleexp.experiment.provenance import provenance
from prebleexp.launch import configs, configure
from prebleexp.launch.compose import Composer

TIMES = 5
OFTEN = 20
"""where a single one is short"""
MANY = 1000
FILES = 20_000


def parts() -> list[Row]:
    """CPU, the least of several times; each part in a folder of its own."""
    rows = []
    for name, part in PARTS.items():
        with TemporaryDirectory() as folder:
            rows.append({"part": name, "microseconds": part(Path(folder)) * 1e6})
    return rows


def _key(folder: Path) -> float:
    cells = configure.cells([f"replications={MANY}"])
    key(cells[0])
    return least_s(lambda: [key(one) for one in cells], TIMES) / MANY


def _provenance(folder: Path) -> float:
    provenance()
    return least_s(lambda: [provenance() for _ in range(MANY)], TIMES) / MANY


def _cached(folder: Path) -> float:
    cache, names = Cache(folder), _keys(MANY)
    for name in names:
        cache.put(Entry(name, {"gpus": 4}, {f"m{i}": i / 3 for i in range(50)}, {"seconds": 0.5}))
    return least_s(lambda: [cache.get(name) for name in names], TIMES) / MANY


def _loaded(folder: Path) -> float:
    rows, fresh = _rows(), itertools.count()
    return least_s(lambda: store.load(folder / f"{next(fresh)}.duckdb", rows, {}), TIMES)


def _loaded_again(folder: Path) -> float:
    rows, database = _rows(), folder / "one.duckdb"
    store.load(database, rows, {})
    return least_s(lambda: store.load(database, rows, {}), TIMES)


def _rows() -> list[store.Row]:
    return [
        {"key": name, "policy": f"p{i % 3}", "seed": i, **{f"m{j}_s": i / 7 + j for j in range(50)}}
        for i, name in enumerate(_keys(MANY))
    ]


def _listed(folder: Path) -> float:
    cache = Cache(folder)
    for name in _keys(FILES):
        cache.path(name).parent.mkdir(exist_ok=True)
        cache.path(name).touch()
    return least_s(lambda: indexing.keys_of(cache), TIMES)


def _composed(folder: Path) -> float:
    jobs = [
        [f"gpus={gpus}", f"rps={rps}", f"policy={policy}"]
        for gpus, rps, policy in itertools.product(range(1, 26), range(1, 21), ("random", "lor"))
    ]
    return least_s(lambda: _compose(jobs), 1) / len(jobs)


def _compose(jobs: list[list[str]]) -> None:
    composer = Composer(configs.loader())
    for job in jobs:
        configure.job_of(composer.compose(job))


def _configured(folder: Path) -> float:
    configure.cells(["gpus=3", "policy=e2"])
    seeds = itertools.count()
    return least_s(lambda: configure.cells(["gpus=4", "policy=e2", f"seed={next(seeds)}"]), OFTEN)


def _measured(folder: Path) -> float:
    (cell,) = configure.cells(["gpus=4", "rps=32", "policy=lor"])
    workload = runs.draw(cell)
    outcome = runs.simulate_cell(cell, workload)
    return least_s(lambda: metrics.measure(workload, outcome), OFTEN)


def _keys(n: int) -> list[str]:
    return [hashlib.sha256(str(i).encode()).hexdigest() for i in range(n)]


PARTS: dict[str, Callable[[Path], float]] = {
    "the key of a cell": _key,
    "provenance of a run": _provenance,
    "a run read from the cache": _cached,
    "1,000 rows loaded into a new database": _loaded,
    "1,000 rows that the database has": _loaded_again,
    "the keys of 20,000 runs listed": _listed,
    "a job of a sweep composed": _composed,
    "a configuration composed, the second": _configured,
    "metrics of 960 requests": _measured,
    "a page of 960 runs drawn": pages.drawn_s,
    "the same page again": pages.again_s,
}
TABLE = Table(parts, {"microseconds": LESS})
