"""How functions are compiled.

Without the GIL, so that runs go on side by side in threads; kept on disk; and without numba's reference counts. A
function here is handed many arrays, and two atomic operations for each, in every call, took more than half of a run's
time. None of them allocates an array, so nothing is there to be counted: the arrays belong to Python, which outlives
the call.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from numba import config, njit, types
from numba.core.caching import FunctionCache

from prebleexp import machine_code, sources
from prebleexp.sim.linked import KeptIR, Linked

F = TypeVar("F", bound=Callable[..., Any])

_LOCK = threading.Lock()
"""nothing is compiled by two threads at once"""

INTERPRETED = bool(config.DISABLE_JIT)  # type: ignore[attr-defined]
"""whether all of it runs as plain Python (NUMBA_DISABLE_JIT)"""

OPTIONS: Any = {"nogil": True, "_nrt": False}
LEAN: Any = OPTIONS | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""… of what Python never calls: to be callable from there is a tenth of what a function takes to compile"""


def compiled(function: F) -> F:
    """Decorator: compile for the types of the arguments when first called.

    One that is not the package's may allocate; it is checked, and kept, with the plug that calls it."""
    if not sources.is_own(function.__code__.co_filename):
        return njit(nogil=True)(function)  # type: ignore[return-value]
    return _linked_for_compiled(kept(function), function)


def compiled_for(signature: Any) -> Callable[[F], F]:
    """Decorator: compile one of the package's for these types alone, when it is first called, which is by Python."""

    def later(function: F) -> F:
        dispatcher = kept(function)

        def compile_now() -> None:
            with _LOCK, undisturbed():
                if not dispatcher.overloads:
                    dispatcher.compile(signature)
                    dispatcher.disable_compile()

        def call(*arguments: Any) -> Any:
            if not dispatcher.overloads:
                compile_now()
            return dispatcher(*arguments)

        return dispatcher if INTERPRETED else call  # type: ignore[return-value]

    return later


@contextmanager
def undisturbed() -> Iterator[None]:
    """Compile without garbage collection: what is made stays, and to look through it over and over takes time."""
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


def kept(function: Any, file: str | None = None, lean: bool = False) -> Any:
    """One of the package's, with machine code on disk, for the source file that it is of. `lean`: Python must not call
    it, which would crash."""
    dispatcher: Any = njit(**(LEAN if lean else OPTIONS))(function)
    return _on_disk(dispatcher, function, _KeptLean if lean else _Kept, file)


def _on_disk(dispatcher: Any, function: Any, cache: type[FunctionCache], file: str | None = None) -> Any:
    if not INTERPRETED:
        with machine_code.folder(file or function.__code__.co_filename):
            dispatcher._cache = cache(function)
    return dispatcher


class _Kept(FunctionCache):
    """numba gets ready to compile before it loads, which takes longer than all that a short run does besides. Code
    without reference counts needs none of that."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        return self._load_overload(sig, target_context)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Functions that are a part of it find their environments where its code does."""
        for environment in data._find_referenced_environments():
            data.codegen.set_env(environment.env_name, environment)
        super().save_overload(sig, data)


class _KeptLean(_Kept):
    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return (*super()._index_key(sig, codegen), "lean")


class _KeptLinked(FunctionCache):
    _impl_class = KeptIR

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return (*super()._index_key(sig, codegen), "linked")


def _linked_for_compiled(dispatcher: Any, function: F) -> F:
    """Let compiled code call another that is linked with it, and that Python cannot call, with all integers of 64 bits:
    fields of records are narrower here and there, and numba would compile the function, and all that it calls, once for
    each."""
    if INTERPRETED:
        return function

    @cache
    def linked() -> Any:
        return _on_disk(njit(**LEAN, pipeline_class=Linked)(function), function, _KeptLinked)

    def template(arguments: Any, named: Any) -> Any:
        wide = tuple(types.int64 if isinstance(one, types.Integer) else one for one in arguments)
        return linked().get_call_template(wide, named)

    dispatcher.get_call_template, dispatcher.get_overload = template, lambda signature: linked().get_overload(signature)
    return dispatcher
