"""Runs as one file, to be taken elsewhere: an uncompressed tar with the cache's own files and a manifest before them.

An archive may come from anybody. Nothing in it is unpacked under a name that it gives itself: a member is read, must be
an entry whose key is the hash of what it stands for, and is then put into the cache as if it had been computed.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

from prebleexp.errors import InvalidInput, PrebleexpError, unreadable
from prebleexp.experiment import durable
from prebleexp.experiment.cache import FORMATS, Cache, Entry, parse
from prebleexp.experiment.key import digest
from prebleexp.experiment.maintenance import check_rows
from prebleexp.experiment.sealed import Damaged

MANIFEST = "manifest.json"
LARGEST_ENTRY = 16 << 20
"""bytes of JSON; it is read as a whole"""
_MEMBER = re.compile(r"([0-9a-f]{64})\.(json|parquet)")


@dataclass(frozen=True)
class Imported:
    """What became of an archive's runs."""

    added: int
    present: int
    """that the cache has already; they are left as they are"""
    refused: list[str]
    """a line each"""


def export(cache: Cache, entries: Iterable[Entry], path: Path) -> int:
    """Write entries to an archive and return how many. The same entries give the same bytes.

    Raises PrebleexpError if an entry cannot be read or the file cannot be written; nothing is left then.
    """
    found = {entry.key: entry for entry in entries}
    manifest = {"files": FORMATS[0], "keys": FORMATS[1], "runs": len(found)}
    try:
        with durable.writing(path) as file, tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            _add(tar, MANIFEST, json.dumps(manifest).encode())
            for key in sorted(found):
                if found[key].requests_sha256 is not None:
                    cache.check(found[key])
                    _add(tar, f"{key}.parquet", cache.requests_path(key).read_bytes())
                _add(tar, f"{key}.json", cache.path(key).read_bytes())
    except Damaged as error:
        raise PrebleexpError(f"run {key} cannot be exported: {error}; python -m prebleexp cache verify") from error
    except OSError as error:
        raise PrebleexpError(f"{path} cannot be written: {error.strerror}") from error
    return len(found)


def check_place(path: Path) -> None:
    """Raises PrebleexpError if no file can be written there: better before an export's work than after it."""
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        TemporaryFile(dir=path.absolute().parent).close()
    except OSError as error:
        raise PrebleexpError(f"{path} cannot be written: {error.strerror}") from error


def take_in(cache: Cache, path: Path) -> Imported:
    """Put an archive's runs into the cache, each as a whole or not at all.

    Raises InvalidInput if the file is no archive of runs or is of a later format, PrebleexpError if it ends too early
    or the cache cannot be written; what was taken in by then stays.
    """
    added = present = 0
    refused: list[str] = []
    with _opened(path) as tar:
        runs = _manifest(tar, path)
        requests: tuple[str, bytes] | None = None
        for member, name in _members(tar, path, refused):
            data = _data(tar, member, path)
            if name[2] == "parquet":
                requests = (name[1], data)
                continue
            try:
                entry = parse(data, name[1], Entry)
                if digest(entry.content) != entry.key:
                    raise Damaged("its key is not the hash of what it stands for")
                of_entry = requests[1] if requests is not None and requests[0] == entry.key else None
                check_rows(entry, of_entry)
            except Damaged as error:
                refused.append(f"{member.name}: {error}")
            else:
                if cache.get(entry.key, requests=of_entry is not None) is None:
                    cache.put(entry, of_entry)
                    added += 1
                else:
                    present += 1
            requests = None
    if added + present + len(refused) < runs:
        raise PrebleexpError(f"{path} ends too early: {added + present} of {runs} runs were in it; those are kept")
    return Imported(added, present, refused)


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)  # no time, no owner: the same bytes everywhere
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


@contextmanager
def _opened(path: Path) -> Iterator[tarfile.TarFile]:
    try:
        file: BinaryIO = path.open("rb")
    except OSError as error:
        raise unreadable(str(path), path, error) from error
    with file:
        try:
            tar = tarfile.TarFile(fileobj=file)
        except tarfile.TarError as error:
            raise InvalidInput(f"{path} is no archive of runs") from error
        with tar:
            yield tar


def _manifest(tar: tarfile.TarFile, path: Path) -> int:
    """How many runs there should be."""
    try:
        member = tar.next()
        if member is None or member.name != MANIFEST or not member.isreg() or member.size > LARGEST_ENTRY:
            raise ValueError
        found = json.loads(_data(tar, member, path))
        formats, runs = (int(found["files"]), int(found["keys"])), int(found["runs"])
    except (tarfile.TarError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{path} is no archive of runs") from error
    if formats != FORMATS:
        theirs, ours = (".".join(map(str, one)) for one in (formats, FORMATS))
        later = any(one > other for one, other in zip(formats, FORMATS, strict=True))
        raise InvalidInput(
            f"{path} was exported by {'a later' if later else 'an older'} prebleexp (format {theirs}, this one knows "
            f"{ours})"
        )
    return runs


def _members(tar: tarfile.TarFile, path: Path, refused: list[str]) -> Iterator[tuple[tarfile.TarInfo, re.Match[str]]]:
    """Those that could be a run's file."""
    size = path.stat().st_size
    while True:
        try:
            member = tar.next()
        except (tarfile.TarError, ValueError) as error:
            raise PrebleexpError(f"{path} is damaged: {error}") from error
        if member is None:
            return
        name = _MEMBER.fullmatch(member.name)
        if name is None or not member.isreg():
            refused.append(
                f"{member.name!r}: it is not the name of a run's file"
                if name is None
                else f"{member.name}: it is no plain file"
            )
        elif member.size > (LARGEST_ENTRY if name[2] == "json" else size):
            refused.append(f"{member.name}: {member.size:,} bytes are too many")
        else:
            yield member, name


def _data(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> bytes:
    file = tar.extractfile(member)  # to memory
    assert file is not None
    try:
        data = file.read()
    except tarfile.TarError as error:
        raise PrebleexpError(f"{path} ends too early, in {member.name}") from error
    if len(data) != member.size:
        raise PrebleexpError(f"{path} ends too early, in {member.name}")
    return data
