"""How functions are compiled.

Without the GIL, so that runs go on side by side in threads; kept on disk; and without numba's reference counts. A
function here is handed many arrays, and two atomic operations for each, in every call, took more than half of a run's
time. None of them allocates an array, so nothing is there to be counted: the arrays belong to Python, which outlives
the call. numba is imported when the first of them is compiled, or called by Python.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial, update_wrapper
from typing import Any, TypeVar, cast

from prebleexp import sources
from prebleexp.sim.later import INTERPRETED as INTERPRETED
from prebleexp.sim.later import Later

F = TypeVar("F", bound=Callable[..., Any])

OPTIONS: Any = {"nogil": True, "_nrt": False}
LEAN: Any = OPTIONS | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""… of what Python never calls: to be callable from there is a tenth of what a function takes to compile"""


def compiled(function: F) -> F:
    """Decorator: compile for the types of the arguments when first called.

    One that is not the package's may allocate; it is checked, and kept, with the plug that calls it."""
    if INTERPRETED:
        return function
    if not sources.is_own(function.__code__.co_filename):
        from numba import njit

        return njit(nogil=True)(function)  # type: ignore[return-value]
    later: Any = Later(partial(_linked_for_compiled, function))
    later.py_func = function
    return cast("F", update_wrapper(later, function))


def chosen_by(field: str, without: F, having: F) -> F:
    """One function for two kinds of memory: `having` where the first argument, a NamedTuple, has anything in a field,
    and `without` where that is None. Code that calls it is compiled with one of the two alone."""
    if INTERPRETED:
        return cast("F", lambda mine, *rest: (without if getattr(mine, field) is None else having)(mine, *rest))

    def made() -> Any:
        from numba import njit, types

        one: Any = without
        chosen: Any = njit(**OPTIONS)(one.py_func)

        def which(arguments: Any) -> Any:
            kind, _ = arguments[0].field(field)
            return without if kind is types.none else having

        chosen.get_call_template = lambda arguments, named: which(arguments).get_call_template(arguments, named)
        chosen.get_overload = lambda signature: which(signature).get_overload(signature)
        return chosen

    return cast("F", Later(made))


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
    from numba import njit

    from prebleexp.sim import on_disk
    from prebleexp.sim.lean import Lean

    made: Any = njit(**(LEAN if lean else OPTIONS), pipeline_class=Lean)(function)
    return on_disk.keep(made, on_disk.KeptLean if lean else on_disk.KeptOwn, file)


def _linked_for_compiled(function: Any) -> Any:
    """Let compiled code call another that is linked with it, and that Python cannot call, with all integers of 64 bits:
    fields of records are narrower here and there, and numba would compile the function, and all that it calls, once for
    each."""
    from numba import njit, types

    from prebleexp.sim import on_disk
    from prebleexp.sim.linked import Linked

    dispatcher = kept(function)

    @cache
    def linked() -> Any:
        return on_disk.keep(njit(**LEAN, pipeline_class=Linked)(function), on_disk.KeptLinked)

    def template(arguments: Any, named: Any) -> Any:
        wide = tuple(types.int64 if isinstance(one, types.Integer) else one for one in arguments)
        return linked().get_call_template(wide, named)

    dispatcher.get_call_template, dispatcher.get_overload = template, lambda signature: linked().get_overload(signature)
    return dispatcher
