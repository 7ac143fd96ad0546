"""Care of a cache folder: what is in it, whether it is sound, and what may go."""

from __future__ import annotations

import hashlib
import io
import math
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prebleexp.experiment.cache import STALE_S, Cache, Entry, FailedRun, parse
from prebleexp.experiment.counting import counted
from prebleexp.experiment.key import FORMAT, code, digest
from prebleexp.experiment.sealed import Damaged

_NAME = re.compile(r"([0-9a-f]{64})(\.json|\.parquet|\.failed\.json)")
_PER_TASK = 100


@dataclass(frozen=True)
class Fault:
    """Something that should not be there, or not be so."""

    path: Path
    what: str
    removable: bool = False
    """whether nothing is lost with it"""


@dataclass(frozen=True)
class Item:
    """A run in the cache, finished or failed."""

    key: str
    run: Entry | FailedRun
    bytes: int
    """of its files"""
    written: float
    """seconds since the epoch"""

    @property
    def failed(self) -> bool:
        return isinstance(self.run, FailedRun)

    @property
    def current(self) -> bool:
        """Whether it would be found today: the same format, and the same code of this package."""
        content = self.run.content
        return content.get("format") == FORMAT and content.get("code") == code()

    def columns(self) -> dict[str, Any]:
        """As a row of a table."""
        cell = counted(self.run.content["cell"])
        names = {spec: cell[spec]["_target_"].split(".")[-2] for spec in ("policy", "workload") if spec in cell}
        gpus = {"gpus": cell["gpus"], "replicas": cell.get("replicas", cell["gpus"])}
        numbers = gpus | {name: cell.get(name) for name in ("rps", "duration_s", "seed")}
        return {
            "key": self.key,
            **names,
            **numbers,
            "state": "failed" if self.failed else "finished",
            "code": "current" if self.current else "unused",
            "seconds": self.run.provenance.get("seconds"),
            "bytes": self.bytes,
            "age_s": round(max(time.time() - self.written, 0.0)),
        }


def items(cache: Cache) -> Iterator[Item]:
    """Everything in the cache that can be read; what is damaged is left out (see `verify`)."""
    for path in _files(cache.runs):
        name = _NAME.fullmatch(path.name)
        if name is None or name[2] == ".parquet":
            continue
        with suppress(OSError, Damaged):  # somebody else may remove it meanwhile
            run = _read(path, name)
            status, size = path.stat(), path.stat().st_size
            if isinstance(run, Entry) and run.requests_sha256 is not None:
                size += cache.requests_path(name[1]).stat().st_size
            yield Item(name[1], run, size, status.st_mtime)


def verify(cache: Cache, workers: int | None = None) -> list[Fault]:
    """Read everything and check it: that each file is what was written, that its name is the hash of what it stands
    for, that requests are there, readable and as many as the run had, and that nothing lies about."""
    from joblib import Parallel, delayed

    files = list(_files(cache.runs))
    parts = [files[i : i + _PER_TASK] for i in range(0, len(files), _PER_TASK)]
    parallel = Parallel(n_jobs=workers or os.cpu_count() or 1, backend="threading")
    return [fault for found in parallel(delayed(_faults)(part, cache) for part in parts) for fault in found]


def repair(cache: Cache, faults: Iterable[Fault]) -> None:
    """Set damaged entries aside and remove what nothing is lost with. Raises OSError if that cannot be done."""
    for fault in faults:
        name = _NAME.fullmatch(fault.path.name)
        if fault.removable:
            fault.path.unlink(missing_ok=True)
        elif name is not None:
            cache.set_aside(fault.path, name[1], fault.what)


@dataclass(frozen=True)
class Removal:
    """Files that may go, those that make an entry exist first."""

    why: str
    paths: Sequence[Path]
    bytes: int


def waste(
    cache: Cache,
    *,
    older_than_s: float = math.inf,
    keep_bytes: float = math.inf,
    unused_code: bool = False,
    failed: bool = False,
    bad: bool = False,
) -> list[Removal]:
    """What may go: runs written longer ago, the oldest until the rest is no larger than `keep_bytes`, those that
    other code computed, failures, and what was set aside as damaged."""
    removals = []
    left: list[Item] = []
    for item in items(cache):
        if time.time() - item.written > older_than_s:
            removals.append(_removal(cache, item, "old"))
        elif unused_code and not item.current:
            removals.append(_removal(cache, item, "of unused code"))
        elif failed and item.failed:
            removals.append(_removal(cache, item, "failed"))
        else:
            left.append(item)
    size = sum(item.bytes for item in left)
    for item in sorted(left, key=lambda item: item.written):
        if size <= keep_bytes:
            break
        size -= item.bytes
        removals.append(_removal(cache, item, "too much"))
    if bad:
        paths = sorted((cache.folder / "bad").glob("*"))
        removals += [Removal("set aside", [path], path.stat().st_size) for path in paths]
    return removals


def remove(removals: Iterable[Removal]) -> None:
    """Raises OSError if the file system refuses."""
    for removal in removals:
        for path in removal.paths:
            path.unlink(missing_ok=True)


def _removal(cache: Cache, item: Item, why: str) -> Removal:
    if item.failed:
        return Removal(why, [cache.failure_path(item.key)], item.bytes)
    return Removal(why, [cache.path(item.key), cache.requests_path(item.key)], item.bytes)


def _read(path: Path, name: re.Match[str]) -> Entry | FailedRun:
    if name[2] == ".failed.json":
        return parse(path.read_bytes(), name[1], FailedRun)
    return parse(path.read_bytes(), name[1], Entry)


def _files(folder: Path) -> Iterator[Path]:
    for below in sorted(folder.glob("*")):
        if below.is_dir():
            yield from sorted(below.iterdir())
        else:
            yield below


def _faults(files: Iterable[Path], cache: Cache) -> list[Fault]:
    found = []
    for path in files:
        try:
            fault = _fault(path, cache)
        except FileNotFoundError:  # removed or renamed meanwhile
            continue
        except OSError as error:
            fault = Fault(path, f"it cannot be read: {error.strerror}")
        if fault is not None:
            found.append(fault)
    return found


def _fault(path: Path, cache: Cache) -> Fault | None:
    if path.name.startswith(".") and path.name.endswith(".tmp"):
        stale = time.time() - path.stat().st_mtime > STALE_S
        return Fault(path, "its writer died before it was whole", removable=True) if stale else None
    name = _NAME.fullmatch(path.name)
    if name is None or path != cache.runs / name[1][:2] / path.name:
        return Fault(path, "it is nothing of this cache's")
    if name[2] == ".parquet":
        orphan = not cache.path(name[1]).exists()
        return Fault(path, "it has no entry", removable=True) if orphan else None
    try:
        run = _read(path, name)
        if digest(run.content) != name[1]:
            raise Damaged("its key is not the hash of what it stands for")
        if isinstance(run, Entry):
            requests = cache.requests_path(run.key)
            check_rows(run, requests.read_bytes() if run.requests_sha256 and requests.exists() else None)
    except Damaged as error:
        return Fault(path, str(error))
    return None


def check_rows(entry: Entry, requests: bytes | None) -> None:
    """Raises Damaged unless these are the entry's requests, readable, and as many as it had."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if entry.requests_sha256 is None:
        return
    if requests is None or hashlib.sha256(requests).hexdigest() != entry.requests_sha256:
        raise Damaged("its requests are not those that were written" if requests else "its requests are missing")
    try:
        rows = pq.read_metadata(io.BytesIO(requests)).num_rows
    except (pa.ArrowException, OSError) as error:
        raise Damaged(f"its requests are no Parquet file: {str(error).splitlines()[0]}") from error
    if rows != entry.metrics["n_requests"]:
        raise Damaged(f"it has {rows} requests of {entry.metrics['n_requests']}")
