"""Where numba keeps machine code: a folder for every state of the sources that it was made from.

numba notices an edit only in the file of the function itself, not in the functions that it calls. So every module's
code has a folder named by a digest of the module and of all that it imports: sim's as a whole, any other's with sim's.
An edited router is compiled alone. `sources` says as of when; `sim.on_disk` keeps what is compiled there.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from prebleexp import sources
from prebleexp.locks import ByteLocks

_LOCK = threading.RLock()


@contextmanager
def folder(file: str, module: str | None = None, variant: str = "") -> Iterator[None]:
    """What numba is asked to keep within, it keeps in the folder of this source file."""
    from numba import config

    with _LOCK:
        settings: Any = config
        before, settings.CACHE_DIR = settings.CACHE_DIR, str(folder_of(file, module, variant))
        try:
            yield
        finally:
            settings.CACHE_DIR = before


def variant_of(file: str, check: bool) -> str:
    """Code that is not the package's looks at every index, unless it is told not to."""
    return "" if check or sources.is_own(file) else "-unchecked"


def folder_of(file: str, module: str | None = None, variant: str = "") -> Path:
    """That folder. `variant`: of code that is compiled otherwise."""
    return home() / (_digest(file, module)[:16] + variant)


def is_missing(file: str, module: str | None = None, check: bool = True) -> bool:
    """Whether nothing was ever compiled from this file as it is. Its folder is there as soon as it was loaded."""
    return not any(folder_of(file, module, variant_of(file, check)).rglob("*.nbi"))


def _digest(file: str, module: str | None) -> str:
    if sources.is_own(file):
        return _digest_of_own(file)
    # Its own files may change while Python runs: a new module of that name is new code.
    theirs = sources.with_imports(Path(file).resolve(), module)
    ours = _digest_of_package(frozenset(sources.taken_from_package(theirs)))
    return _both(sources.digest(theirs), _both(ours, _core()))


@cache
def _digest_of_own(file: str) -> str:
    place = Path(file).resolve()
    if place.is_relative_to(sources.PACKAGE / "sim"):
        return _core()
    return _both(_digest_of_package(frozenset(sources.own_imports([place]))), _core())


@cache
def _digest_of_package(files: frozenset[Path]) -> str:
    return sources.digest(files)


def _both(one: str, other: str) -> str:
    return hashlib.sha256(f"{one} {other}".encode()).hexdigest()


@cache
def _core() -> str:
    return sources.digest((sources.PACKAGE / "sim").rglob("*.py"))


@cache
def locks() -> ByteLocks:
    """The locks that processes take while they compile."""
    return ByteLocks(home() / "compiling.lock")


@cache
def home() -> Path:
    """The folder of all that is made once and kept for the next process."""
    home = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    for place in (home, tempfile.gettempdir()):
        made = Path(place) / "prebleexp"
        try:
            made.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(made, os.W_OK):
            return made
    return Path(tempfile.mkdtemp())
