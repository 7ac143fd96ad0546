"""Runs on disk: never half seen, verified when read, nothing in them can run code.

A run is `<folder>/v1/<first two digits>/<key>.json` and, if its requests were kept, `<key>.parquet` beside it. The
JSON is written last and is what makes the entry exist. It carries the sha256 of its own bytes and of the Parquet file.
A run that failed is `<key>.failed.json` in the same place, until it succeeds. `<key>.same` is a hint: the key under
which the same requests are kept (prebleexp.experiment.remeasured). `<folder>/format.json` says in what
format all that is.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.experiment import durable
from prebleexp.experiment.key import FORMAT
from prebleexp.experiment.sealed import Damaged, seal, unseal
from prebleexp.history_tables import Kept

LAYOUT = 1
FORMATS = (LAYOUT, FORMAT)
"""of the files, and of the keys"""
MARK = "format.json"
DATABASE = "prebleexp.duckdb"
STALE_S = 3600.0
"""temporary files older than this were left by a writer that died"""
Kind = TypeVar("Kind", "Entry", "FailedRun")


@dataclass(frozen=True)
class Entry:
    """A finished run, as the cache keeps it."""

    key: str
    content: Mapping[str, Any]
    """what the key is a hash of"""
    metrics: Mapping[str, Any]
    provenance: Mapping[str, Any]
    """how it came about: seconds, versions, host"""
    requests_sha256: str | None = None
    """of the Parquet file; None if requests were not kept"""
    history: Kept = field(default_factory=dict)
    """what became of its GPUs; where nothing did, its file has no such field"""


@dataclass(frozen=True)
class FailedRun:
    """Why a run failed when it was last tried."""

    key: str
    content: Mapping[str, Any]
    error: Mapping[str, str]
    """type, message and traceback"""
    provenance: Mapping[str, Any]


_FIELDS = {kind: {one.name for one in fields(kind)} for kind in (Entry, FailedRun)}
_ALWAYS = {kind: {one.name for one in fields(kind) if one.default_factory is MISSING} for kind in (Entry, FailedRun)}


class Cache:
    """The runs in a folder. Any number of threads and processes may read and write it at once."""

    def __init__(self, folder: Path, make: bool = True) -> None:
        """Without `make`, for who only reads, no folder is made and no format noted. Raises InvalidInput if the folder
        cannot be made, or if it is of a later format than this program knows."""
        self.folder = folder
        self.runs = folder.absolute() / f"v{LAYOUT}"  # worker processes may be in another folder
        self.database = folder / DATABASE
        """an index of all (prebleexp.indexing)"""
        self.read_only: str | None = None
        """why nothing can be written; None if it can"""
        marked = _format(folder)
        if not make:
            return
        try:
            self.runs.mkdir(parents=True, exist_ok=True)
            if marked != FORMATS:
                _say_older(folder, marked)
                durable.write(folder / MARK, json.dumps(dict(zip(("files", "keys"), FORMATS, strict=True))).encode())
            elif not os.access(self.runs, os.W_OK):
                self.read_only = "Permission denied"
            self._remove_stale()
        except OSError as error:
            if not self.runs.is_dir():
                raise InvalidInput(f"cache folder {folder} cannot be made: {error.strerror}") from error
            self.read_only = error.strerror

    def get(self, key: str, requests: bool = False) -> Entry | None:
        """The entry; None if there is none, if it lacks the requests that are wanted, or if it or its requests are
        damaged (then it is set aside).

        Raises InvalidInput if it cannot be read.
        """
        entry = self._read(self.path(key), key, Entry)
        return None if entry is None or (requests and entry.requests_sha256 is None) else entry

    def failure(self, key: str) -> FailedRun | None:
        """Why the run failed when it was last tried; None if it did not. Raises InvalidInput if it cannot be read."""
        return self._read(self.failure_path(key), key, FailedRun)

    def put(self, entry: Entry, requests: bytes | None = None) -> None:
        """Write an entry, and a Parquet file with its requests first. Raises PrebleexpError if the disk refuses."""
        try:
            self.path(entry.key).parent.mkdir(exist_ok=True)
            if requests is not None:
                durable.write(self.requests_path(entry.key), requests)
            durable.write(self.path(entry.key), seal(_without_empty(entry)))
            self.failure_path(entry.key).unlink(missing_ok=True)
        except OSError as error:
            raise self._refused(error) from error

    def put_failure(self, failed: FailedRun) -> None:
        """Keep a run that failed, with its error."""
        try:
            self.path(failed.key).parent.mkdir(exist_ok=True)
            durable.write(self.failure_path(failed.key), seal(vars(failed)))
        except OSError as error:
            raise self._refused(error) from error

    def forget(self, key: str, failure_only: bool) -> None:
        """Remove a failure, and an entry too unless `failure_only`. Raises PrebleexpError if the disk refuses."""
        paths = [self.failure_path(key)] if failure_only else [self.failure_path(key), self.path(key)]
        try:
            for path in paths:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise self._refused(error) from error

    def note_requests(self, key: str, where: str) -> None:
        """Note that the requests of the run `key` are kept under another. Raises PrebleexpError if the disk refuses."""
        path = self._note_path(key)
        try:
            path.parent.mkdir(exist_ok=True)
            durable.write(path, where.encode())
        except OSError as error:
            raise self._refused(error) from error

    def noted_requests(self, key: str) -> str | None:
        """What was noted last; None if nothing is."""
        try:
            found = self._note_path(key).read_text(encoding="ascii")
        except (OSError, ValueError):
            return None
        return found if re.fullmatch("[0-9a-f]{64}", found) else None

    def check(self, entry: Entry) -> None:
        """Raises Damaged if the entry's requests are not those that were written, OSError if they cannot be read."""
        if entry.requests_sha256 is None:
            return
        try:
            data = self.requests_path(entry.key).read_bytes()
        except FileNotFoundError:
            raise Damaged("its requests are missing") from None
        if hashlib.sha256(data).hexdigest() != entry.requests_sha256:
            raise Damaged("its requests are not those that were written")

    def run(self, start: str) -> Entry | FailedRun:
        """The run, finished or failed, whose key begins so. Raises InvalidInput unless there is just one, and whole."""
        if not re.fullmatch("[0-9a-f]{4,64}", start):
            raise InvalidInput(f"{start!r} is not a key; keys have 64 hexadecimal digits, of which the first will do")
        keys = {key for key in (*self.keys(), *self.failed_keys()) if key.startswith(start)}
        if len(keys) > 1:
            raise InvalidInput(f"{start} begins {len(keys)} keys; give more digits")
        for key in keys:
            if (run := self.get(key) or self.failure(key)) is not None:
                return run
        raise InvalidInput(f"the cache in {self.folder} has no run {start}")

    def keys(self) -> Iterator[str]:
        """Of all entries, in order, unread."""
        for path in sorted(self.runs.glob("??/*.json")):
            if not path.name.startswith(".") and not path.name.endswith(".failed.json"):
                yield path.stem

    def failed_keys(self) -> Iterator[str]:
        """Of all failures, in order, unread."""
        for path in sorted(self.runs.glob("??/*.failed.json")):
            if not path.name.startswith("."):
                yield path.name.removesuffix(".failed.json")

    def path(self, key: str) -> Path:
        return self.runs / key[:2] / f"{key}.json"

    def requests_path(self, key: str) -> Path:
        return self.runs / key[:2] / f"{key}.parquet"

    def failure_path(self, key: str) -> Path:
        return self.runs / key[:2] / f"{key}.failed.json"

    def _note_path(self, key: str) -> Path:
        return self.runs / key[:2] / f"{key}.same"

    def set_aside(self, path: Path, key: str, reason: str) -> None:
        """Move what is damaged out of the way, and say so."""
        bad = self.runs.with_name("bad")
        paths = [path] if path == self.failure_path(key) else [path, self.requests_path(key)]
        try:
            bad.mkdir(exist_ok=True)
            for one in paths:
                with suppress(FileNotFoundError):  # another reader was faster
                    _move(one, bad / one.name)
        except OSError as error:
            print(f"cache entry {path} is damaged: {reason}; it stays: {error.strerror}", file=sys.stderr)
            return
        print(f"cache entry {path} is damaged: {reason}; set aside in {bad}", file=sys.stderr)

    def _read(self, path: Path, key: str, kind: type[Kind]) -> Kind | None:
        try:
            found = parse(path.read_bytes(), key, kind)
            if isinstance(found, Entry):
                self.check(found)
            return found
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InvalidInput(f"cache entry {path} cannot be read: {error.strerror}") from error
        except Damaged as error:
            self.set_aside(path, key, str(error))
            return None

    def _refused(self, error: OSError) -> PrebleexpError:
        return PrebleexpError(f"cache folder {self.folder} cannot be written: {error.strerror}")

    def _remove_stale(self) -> None:
        for path in self.runs.glob("**/.*.tmp"):
            with suppress(OSError):  # its writer or another reader was faster, or it is another user's
                if time.time() - path.stat().st_mtime > STALE_S:
                    path.unlink()


def _without_empty(entry: Entry) -> Mapping[str, Any]:
    return {name: value for name, value in vars(entry).items() if name != "history" or value}


def parse(data: bytes, key: str, kind: type[Kind]) -> Kind:
    """An entry or a failure from its file's bytes. Raises Damaged."""
    content = unseal(data)
    if not _ALWAYS[kind] <= content.keys() <= _FIELDS[kind]:
        raise Damaged("its fields are not those of an entry")
    found = kind(**content)
    if found.key != key:
        raise Damaged(f"it is the entry of {found.key}")
    return found


def _format(folder: Path) -> tuple[int, int] | None:
    """Of the files and of the keys; None if the folder does not say. Raises InvalidInput if they are of a later
    program."""
    try:
        said = json.loads((folder / MARK).read_bytes())
        found = int(said["files"]), int(said["keys"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{folder / MARK} does not say a format; {folder} is not a cache folder") from error
    if any(theirs > ours for theirs, ours in zip(found, FORMATS, strict=True)):
        raise InvalidInput(
            f"cache folder {folder} was written by a later prebleexp (format {_dotted(found)}, this one knows "
            f"{_dotted(FORMATS)}); use that one, or another cache_dir="
        )
    return found


def _say_older(folder: Path, marked: tuple[int, int] | None) -> None:
    if marked is not None:
        print(
            f"cache folder {folder} was of an older format ({_dotted(marked)}, now {_dotted(FORMATS)}); its runs are "
            "not found any more: python -m prebleexp cache gc code=unused removes them",
            file=sys.stderr,
        )


def _dotted(formats: tuple[int, int]) -> str:
    return ".".join(map(str, formats))


def _move(path: Path, to: Path) -> None:
    """A rename, also between file systems."""
    data = path.read_bytes() if path.stat().st_dev != to.parent.stat().st_dev else None
    if data is None:
        path.replace(to)
    else:
        durable.write(to, data)
        path.unlink()
