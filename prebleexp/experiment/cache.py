"""Finished runs on disk: never half seen, verified when read, nothing in them can run code.

A run is `<folder>/v1/<first two digits>/<key>.json` and, if its requests were kept, `<key>.parquet` beside it. The
JSON is written last and is what makes the entry exist. It carries the sha256 of its own bytes and of the Parquet file.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any
from uuid import uuid4

from prebleexp.errors import InvalidInput, PrebleexpError

LAYOUT = "v1"
STALE_S = 3600.0
"""temporary files older than this were left by a writer that died"""
_HEAD, _MIDDLE, _TAIL = b'{"sha256":"', b'","entry":', b"}\n"


@dataclass(frozen=True)
class Entry:
    """A finished run."""

    key: str
    content: Mapping[str, Any]
    """what the key is a hash of"""
    metrics: Mapping[str, Any]
    provenance: Mapping[str, Any]
    """how it came about: seconds, versions, host"""
    requests_sha256: str | None = None
    """of the Parquet file; None if requests were not kept"""


class Damaged(Exception):
    """An entry that cannot be what was written."""


class Cache:
    """The runs in a folder. Any number of threads and processes may read and write it at once."""

    def __init__(self, folder: Path) -> None:
        """Raises InvalidInput if the folder cannot be made or written."""
        self.folder = folder
        try:
            (folder / LAYOUT).mkdir(parents=True, exist_ok=True)
            self._write(folder / LAYOUT / "writable", b"", keep=False)
        except OSError as error:
            raise InvalidInput(f"cache folder {folder} cannot be written: {error.strerror}") from error
        self._remove_stale()

    def get(self, key: str, requests: bool = False) -> Entry | None:
        """The entry; None if there is none, if it lacks the requests that are wanted, or if it or its requests are
        damaged (then it is set aside).

        Raises InvalidInput if it cannot be read.
        """
        try:
            entry = _parse(self._path(key).read_bytes(), key)
            if entry.requests_sha256 is not None:
                self._check_requests(entry)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InvalidInput(f"cache entry {self._path(key)} cannot be read: {error.strerror}") from error
        except Damaged as error:
            self._set_aside(key, str(error))
            return None
        return None if requests and entry.requests_sha256 is None else entry

    def put(self, entry: Entry, requests: bytes | None = None) -> None:
        """Write an entry, and a Parquet file with its requests first. Raises PrebleexpError if the disk refuses."""
        try:
            self._path(entry.key).parent.mkdir(exist_ok=True)
            if requests is not None:
                self._write(self.requests_path(entry.key), requests)
            self._write(self._path(entry.key), _dump(entry))
        except OSError as error:
            raise PrebleexpError(f"cache folder {self.folder} cannot be written: {error.strerror}") from error

    def requests_path(self, key: str) -> Path:
        return self._path(key).with_suffix(".parquet")

    def _path(self, key: str) -> Path:
        return self.folder / LAYOUT / key[:2] / f"{key}.json"

    def _write(self, path: Path, data: bytes, keep: bool = True) -> None:
        """All or nothing, also if the power fails: to the disk under another name, then renamed, then the folder
        to the disk."""
        temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if keep:
                temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _check_requests(self, entry: Entry) -> None:
        try:
            data = self.requests_path(entry.key).read_bytes()
        except FileNotFoundError:
            raise Damaged("its requests are missing") from None
        if hashlib.sha256(data).hexdigest() != entry.requests_sha256:
            raise Damaged("its requests are not those that were written")

    def _set_aside(self, key: str, reason: str) -> None:
        bad = self.folder / "bad"
        try:
            bad.mkdir(exist_ok=True)
            for path in (self._path(key), self.requests_path(key)):
                with suppress(FileNotFoundError):  # another reader was faster
                    path.replace(bad / path.name)
        except OSError as error:
            raise InvalidInput(f"cache folder {bad} cannot be written: {error.strerror}") from error
        print(f"cache entry {self._path(key)} is damaged: {reason}; set aside in {bad}", file=sys.stderr)

    def _remove_stale(self) -> None:
        for path in (self.folder / LAYOUT).glob("**/.*.tmp"):
            with suppress(OSError):  # its writer or another reader was faster, or it is another user's
                if time.time() - path.stat().st_mtime > STALE_S:
                    path.unlink()


def _dump(entry: Entry) -> bytes:
    body = json.dumps(asdict(entry), separators=(",", ":"), allow_nan=False).encode()
    return _HEAD + hashlib.sha256(body).hexdigest().encode() + _MIDDLE + body + _TAIL


def _parse(data: bytes, key: str) -> Entry:
    start = len(_HEAD) + 64 + len(_MIDDLE)
    body = data[start : len(data) - len(_TAIL)]
    digest = hashlib.sha256(body).hexdigest().encode()
    if data != _HEAD + digest + _MIDDLE + body + _TAIL:
        raise Damaged("its bytes are not those that were written")
    content = json.loads(body)
    if not isinstance(content, dict) or content.keys() != {field.name for field in fields(Entry)}:
        raise Damaged("its fields are not those of an entry")
    entry = Entry(**content)
    if entry.key != key:
        raise Damaged(f"it is the entry of {entry.key}")
    return entry
