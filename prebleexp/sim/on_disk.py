"""Machine code on disk, kept by content: a function's place is given by the folder that `machine_code` names, by what
the function is called there, and by what it was compiled for. No path of a checkout is part of it, so that a second
clone finds what the first one compiled.

numba has one index for each function, which it reads, adds to and writes back: of two processes that do so at once, one
may be left with a name for the other's code. Here whatever a function is compiled for has an index of its own, and who
compiles it has a lock, for which others wait: what several processes need is compiled once.
"""

from __future__ import annotations

import hashlib
import time
from functools import cache
from pathlib import Path
from typing import Any

from numba import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, _CacheLocator

from prebleexp import machine_code
from prebleexp.sim.linked import KeptIR

POLL_S = 0.01
PATIENCE_S = 300
"""after which a process that compiles the same seems to be stuck"""


def keep(
    dispatcher: Any, kind: type[Kept], file: str | None = None, module: str | None = None, variant: str = ""
) -> Any:
    """Let a dispatcher keep what it compiles, for the source file that it is of; see `machine_code.folder`."""
    function = dispatcher.py_func
    with machine_code.folder(file or function.__code__.co_filename, module, variant):
        made = dispatcher._cache = kind(function)
    compile_now = dispatcher._compiler.compile

    def guarded(arguments: Any, returned: Any) -> Any:
        try:
            return compile_now(arguments, returned)
        except BaseException:
            made.give_up()
            raise

    dispatcher._compiler.compile = guarded
    return dispatcher


@cache
def _folder(place: Path) -> Path:
    """Which is made, once."""
    place.mkdir(parents=True, exist_ok=True)
    return place


class _ByContent(_CacheLocator):
    def __init__(self, function: Any, file: str) -> None:
        self._py_file, self._lineno = file, function.__code__.co_firstlineno  # numba warns with these
        self._place = _folder(Path(config.CACHE_DIR, Path(file).parent.name))  # type: ignore[attr-defined]

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _ByContent:
        return cls(py_func, py_file)

    def ensure_cache_path(self) -> None:
        self._place.mkdir(parents=True, exist_ok=True)

    def get_cache_path(self) -> str:
        return str(self._place)

    def get_source_stamp(self) -> str:
        return ""  # the folder is one of these sources alone

    def get_disambiguator(self) -> str:
        return str(self._lineno)


class _Impl(CompileResultCacheImpl):
    _locator_classes = [_ByContent]  # noqa: RUF012, as numba has it

    def reduce(self, data: Any) -> Any:
        """numba would also write out what each line of the source was understood as, which nobody reads."""
        return super().reduce(data._replace(type_annotation=""))

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        """numba forgets the object code once it is loaded; `objects` keeps it elsewhere, too."""
        made = super().rebuild(target_context, payload)
        made.library.loaded = payload[0][2][0]
        return made


class _LinkedImpl(KeptIR, _Impl):
    _locator_classes = [_ByContent]  # noqa: RUF012, as numba has it


class _Files:
    """An index and its code for each of the keys."""

    def __init__(self, folder: str, name: str) -> None:
        self._folder, self._name = folder, name

    def of(self, key: Any) -> IndexDataCacheFile:
        return IndexDataCacheFile(self._folder, f"{self._name}.{_hash(key)[:16]}", "")

    def load(self, key: Any) -> Any:
        return self.of(key).load(key)

    def save(self, key: Any, data: Any) -> None:
        self.of(key).save(key, data)


def _hash(key: Any) -> str:
    return hashlib.sha256(repr(key).encode()).hexdigest()


class Kept(FunctionCache):
    """What one function is compiled to."""

    _impl_class: type[CompileResultCacheImpl] = _Impl
    how: tuple[str, ...] = ()
    """it is compiled, beside what for"""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._cache_file: Any = _Files(self._cache_path, self._impl.filename_base)
        self._turns: list[str] = []

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """If it is not there, it is our turn to compile, or another's: then it is there afterwards."""
        found = self._load(sig, target_context)
        if found is None:
            self._take_turn(sig, target_context)
            found = self._load(sig, target_context)
            if found is not None:
                self.give_up()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        finally:  # also where the disk is full
            self.give_up()

    def give_up(self) -> None:
        """Give up the turn to compile, so that other processes may."""
        machine_code.locks().release(self._turns.pop())

    def _take_turn(self, sig: Any, target_context: Any) -> None:
        key = self._index_key(sig, target_context.codegen())
        self._turns.append(_hash((self._cache_path, self._impl.filename_base, key)))
        for _ in range(round(PATIENCE_S / POLL_S)):
            if machine_code.locks().take(self._turns[-1]):
                return
            time.sleep(POLL_S)

    def _load(self, sig: Any, target_context: Any) -> Any:
        return super().load_overload(sig, target_context)

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return (*super()._index_key(sig, codegen), *self.how)


class KeptOwn(Kept):
    """Of one of the package's. numba gets ready to compile before it loads, which takes longer than all that a short
    run does besides. Code without reference counts needs none of that."""

    def _load(self, sig: Any, target_context: Any) -> Any:
        return self._load_overload(sig, target_context)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Functions that are a part of it find their environments where its code does."""
        for environment in data._find_referenced_environments():
            data.codegen.set_env(environment.env_name, environment)
        super().save_overload(sig, data)


class KeptLean(KeptOwn):
    how = ("lean",)


class KeptLinked(Kept):
    _impl_class = _LinkedImpl
    how = ("linked",)

    def _load(self, sig: Any, target_context: Any) -> Any:
        return self._load_overload(sig, target_context)
