"""What numba makes of a plug's functions: functions that are given the address of its block, and calls of them by
address (see `prebleexp.sim.plug`)."""

from __future__ import annotations

import functools
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from numba import int64, njit, types
from numba.core import cgutils
from numba.core.dispatcher import Dispatcher
from numba.core.errors import TypingError
from numba.extending import intrinsic

from prebleexp import machine_code, sources
from prebleexp.sim import on_disk
from prebleexp.sim.compiled import OPTIONS, kept
from prebleexp.sim.handle_types import type_of
from prebleexp.sim.objects import Wanted


# ---------------------------------------------------------------- calling through an address
def caller(restype: Any) -> Any:
    """`call(address, *arguments)`: what the function at that address returns, 0 if there is none; an error in it is the
    caller's."""

    @intrinsic
    def call(typing: Any, address: Any, *arguments: Any) -> tuple[Any, Any]:
        kinds = tuple(int64 if isinstance(one, types.Integer | types.Boolean) else one for one in arguments)

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            kind = context.call_conv.get_function_type(restype, kinds)
            answer = cgutils.alloca_once_value(builder, context.get_constant_null(restype))
            with cgutils.if_likely(builder, cgutils.is_not_null(builder, values[0])):
                pointer = builder.inttoptr(values[0], kind.as_pointer())
                given = [
                    context.cast(builder, one, before, after)
                    for one, before, after in zip(
                        cgutils.unpack_tuple(builder, values[1]), arguments, kinds, strict=True
                    )
                ]
                status, value = context.call_conv.call_function(builder, pointer, restype, kinds, given)
                with cgutils.if_unlikely(builder, status.is_error):
                    context.call_conv.return_status_propagate(builder, status)
                builder.store(value, answer)
            return builder.load(answer)

        return restype(address, types.StarArgTuple(arguments)), generate

    return call


@intrinsic
def _whole(typing: Any, value: Any) -> Any:
    """What must be an integer: numba would cut a float to one in silence."""
    if not isinstance(value, types.Integer | types.Boolean):
        raise TypingError("it must return an integer")
    return int64(value), lambda context, builder, signature, values: context.cast(builder, values[0], value, int64)


@njit(**OPTIONS)  # type: ignore[untyped-decorator]
def _as_it_is(value: Any) -> Any:
    return value


function: Any = None
returned: Any = None
"""what these names stand for in an adapter, `_adapter` says"""


def _one(own: Any, a: Any) -> Any:
    return returned(function(own.self, own.mine, a))


def _two(own: Any, a: Any, b: Any) -> Any:
    return returned(function(own.self, own.mine, a, b))


def _three(own: Any, a: Any, b: Any, c: Any) -> Any:
    return returned(function(own.self, own.mine, a, b, c))


def _four(own: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    return returned(function(own.self, own.mine, a, b, c, d))


def _five(own: Any, a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
    return returned(function(own.self, own.mine, a, b, c, d, e))


def _six(own: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> Any:
    return returned(function(own.self, own.mine, a, b, c, d, e, f))


def _seven(own: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any) -> Any:
    return returned(function(own.self, own.mine, a, b, c, d, e, f, g))


_ADAPTERS = {1: _one, 2: _two, 3: _three, 4: _four, 5: _five, 6: _six, 7: _seven}


@functools.cache
def overload_of(one: Wanted, check: bool) -> Any:
    """What a function is compiled to: as it stands, or as a part of a function of a plug's block, whose name is then
    `qualified`. `check`: one that is not the package's looks at every index."""
    python, file = one.function, one.function.__code__.co_filename
    own, signature = sources.is_own(file), type_of(one.returns)(*map(type_of, one.arguments))
    if one.qualified is None:
        dispatcher = kept(python, file, lean=True)
        dispatcher.compile(signature)
        return _only(dispatcher)
    options: dict[str, Any] = OPTIONS if own else {"nogil": True, "boundscheck": check}
    if not own:
        _let_check(python, check, set())
    # One's own is compiled as a part of the adapter alone: both would be optimised, with all that they call.
    inner = njit(inline="always", **options)(python) if own else njit(**options)(python)
    returned = _whole if isinstance(signature.return_type, types.Integer) else _as_it_is
    made = FunctionType(
        _ADAPTERS[len(signature.args) - 1].__code__,
        {"function": inner, "returned": returned, "__name__": __name__},
        one.name,
    )
    made.__qualname__ = one.qualified
    if own:
        dispatcher = kept(made, file, lean=True)
        dispatcher.compile(signature)
    else:
        cached = Path(file).is_file() and "<locals>" not in one.qualified and not python.__closure__
        variant = machine_code.variant_of(file, check)
        dispatcher = njit(**options)(made)
        if cached:
            on_disk.keep(dispatcher, on_disk.Kept, file, python.__module__, variant)
        dispatcher.compile(signature)
    return _only(dispatcher)


def _only(dispatcher: Any) -> Any:
    (overload,) = dispatcher.overloads.values()
    return overload


def called_of(function: Any) -> dict[str, Any]:
    """The compiled functions of others that a function calls, by how it names them: `help` or `module.help`."""
    places, found, seen = [("", function.__globals__)], dict[str, Any](), set[Any]()
    for prefix, place in places:  # grows: modules within modules
        for name in place.keys() & set(function.__code__.co_names):
            one = place[name]
            if isinstance(one, ModuleType) and one not in seen:
                seen.add(one)
                places.append((f"{prefix}{name}.", vars(one)))
            elif isinstance(one, Dispatcher) and not sources.is_own(one.py_func.__code__.co_filename):
                found[prefix + name] = one
    return found


def _let_check(function: Any, check: bool, seen: set[Any]) -> None:
    """Let all that a function calls look at every index, or not."""
    for called in called_of(function).values():
        if called not in seen:
            seen.add(called)
            _let_check(called.py_func, check, seen)
            if called.targetoptions.get("boundscheck") != check:
                called.targetoptions["boundscheck"] = check
                if called.overloads:
                    called.recompile()
