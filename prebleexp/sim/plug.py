"""Plugs: whatever decides in a run (a router, an engine, a cost model) as functions of the loop.

A plug is a frozen dataclass whose fields are its YAML, what its `start` makes to remember, and some functions. Compiled
code gets them as one record: the address of its own block (`Own`), and the addresses of its functions, 0 where it gives
none. So the loop is compiled once for all plugs, and a plug once for all loops. The same source runs as plain Python.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numba import float64, int64, njit, types
from numba.core import cgutils
from numba.core.dispatcher import Dispatcher
from numba.core.errors import TypingError
from numba.extending import intrinsic

from prebleexp import machine_code, sources
from prebleexp.sim import on_disk
from prebleexp.sim.compiled import INTERPRETED, OPTIONS, kept, undisturbed
from prebleexp.sim.handles import Block


class Own(NamedTuple):
    """What a plug's functions are given of itself."""

    self: Any
    """its dataclass's numbers"""
    mine: Any
    """what its `start` returned"""


def numbers(plug: Any) -> Any:
    """The fields of a dataclass that compiled code can read: numbers and truth values. A whole number in a field of
    type float is a float: code is not compiled anew for 60 where it was for 60.5."""
    kept = {}
    for one in dataclasses.fields(plug):
        value = getattr(plug, one.name)
        if isinstance(value, int | float):
            kept[one.name] = float(value) if type(value) is int and "float" in str(one.type) else value
    return _tuple_type(type(plug).__name__, tuple(kept))(**kept)


@functools.cache
def _tuple_type(name: str, fields: tuple[str, ...]) -> Any:
    return NamedTuple(name, [(field, Any) for field in fields])


# ---------------------------------------------------------------- calling through an address
def caller(restype: Any) -> Any:
    """`call(address, *arguments)`: what the function at that address returns; an error in it is the caller's."""
    if INTERPRETED:  # an int64 all the same, also if the function read a narrower one in a record
        plain_type = {int64: int, float64: float}.get(restype, lambda nothing: nothing)
        return lambda function, *arguments: plain_type(function(*arguments))

    @intrinsic
    def call(typing: Any, address: Any, *arguments: Any) -> tuple[Any, Any]:
        kinds = tuple(int64 if isinstance(one, types.Integer | types.Boolean) else one for one in arguments)

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            kind = context.call_conv.get_function_type(restype, kinds)
            pointer = builder.inttoptr(values[0], kind.as_pointer())
            given = [
                context.cast(builder, one, before, after)
                for one, before, after in zip(cgutils.unpack_tuple(builder, values[1]), arguments, kinds, strict=True)
            ]
            status, value = context.call_conv.call_function(builder, pointer, restype, kinds, given)
            with cgutils.if_unlikely(builder, status.is_error):
                context.call_conv.return_status_propagate(builder, status)
            return value

        return restype(address, types.StarArgTuple(arguments)), generate

    return call


call_int, call_float, call_none = caller(int64), caller(float64), caller(types.none)


# ---------------------------------------------------------------- the functions of a plug
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


_ADAPTERS = {2: _two, 3: _three, 4: _four, 5: _five, 6: _six, 7: _seven}


Signatures = Mapping[str, tuple[Any, tuple[Any, ...]]]
"""of each function the type of what it returns, and those of its arguments behind `self` and `mine`"""


class Plug:
    """A plug in one run: what compiled code is given of it, and whatever that points at, kept for as long as this is.

    `functions` says of each function its signature beside the block; those in `optional` need not be there. `check`:
    functions that are not the package's look at every index. Raises TypeError for what compiled code cannot read, and
    numba's errors for what does not compile.
    """

    def __init__(
        self,
        plug: Any,
        source: Any,
        mine: Any,
        record: np.dtype[Any],
        functions: Signatures,
        optional: Any = (),
        check: bool = True,
    ) -> None:
        self.plug, self._source, self._functions, self._check = plug, source, functions, check
        self._numbers = None if plug is None else plug.numbers() if hasattr(plug, "numbers") else numbers(plug)
        self.block = Block(Own(self._numbers, mine))
        self.made = {name: self._make(name) for name in functions if hasattr(source, name) or name not in optional}
        self.record = SimpleNamespace(**dict.fromkeys(record.names or (), 0)) if INTERPRETED else _one(record)
        self._write()

    @property
    def mine(self) -> Any:
        return self.block.value.mine

    def replace(self, mine: Any) -> None:
        """Let it remember something else, of the same types."""
        self.block.replace(Own(self._numbers, mine))
        self._write()

    def repeated(self, times: int) -> Any:
        """The record so many times, as an array."""
        if INTERPRETED:
            return [self.record] * times
        return np.full(times, self.record).view(np.recarray)

    def _write(self) -> None:
        for name, made in self.made.items():
            setattr(self.record, name, made if INTERPRETED else made.address)
        self.record.own = self.block.value if INTERPRETED else self.block.address

    def _make(self, name: str) -> Any:
        function, (result, arguments) = getattr(self._source, name), self._functions[name]
        if INTERPRETED:
            return lambda own, *rest: function(own.self, own.mine, *rest)
        signature, qualified = result(self.block.type, *arguments), _qualified(self.plug, name)
        with _LOCK, undisturbed():
            return _adapter(function, signature, name, qualified, self._check)


def joined(parts: Sequence[Any]) -> Any:
    """Repeated records of several plugs, one after the other."""
    return [one for part in parts for one in part] if INTERPRETED else np.concatenate(parts).view(np.recarray)


_LOCK = threading.RLock()


class _Made(NamedTuple):
    address: int
    overload: Any
    """keeps the code where it is"""


def _one(record: np.dtype[Any]) -> Any:
    return np.zeros(1, record).view(np.recarray)[0]


def _qualified(plug: Any, name: str) -> str:
    return f"{type(plug).__module__}.{type(plug).__qualname__}.{name}"


@functools.cache
def _adapter(function: Any, signature: Any, name: str, qualified: str, check: bool) -> _Made:
    """`function(self, mine, …)` as a function of a block's handle, for whoever calls it by address."""
    python = getattr(function, "py_func", function)
    file, own = python.__code__.co_filename, sources.is_own(python.__code__.co_filename)
    options: dict[str, Any] = OPTIONS if own else {"nogil": True, "boundscheck": check}
    if not own:
        _let_check(python, check, set())
    # One's own is compiled as a part of the adapter alone: both would be optimised, with all that they call.
    inner = njit(inline="always", **options)(python) if own else njit(**options)(python)
    returned = _whole if isinstance(signature.return_type, types.Integer) else _as_it_is
    made = FunctionType(
        _ADAPTERS[len(signature.args) - 1].__code__,
        {"function": inner, "returned": returned, "__name__": __name__},
        name,
    )
    made.__qualname__ = qualified
    if own:
        dispatcher = kept(made, file, lean=True)
        dispatcher.compile(signature)
    else:
        cached = Path(file).is_file() and "<locals>" not in qualified and not python.__closure__
        variant = machine_code.variant_of(file, check)
        dispatcher = njit(**options)(made)
        if cached:
            on_disk.keep(dispatcher, on_disk.Kept, file, python.__module__, variant)
        dispatcher.compile(signature)
    (overload,) = dispatcher.overloads.values()
    return _Made(overload.library.get_pointer_to_function(overload.fndesc.llvm_func_name), overload)


def _called(function: Any) -> dict[str, Any]:
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
    for called in _called(function).values():
        if called not in seen:
            seen.add(called)
            _let_check(called.py_func, check, seen)
            if called.targetoptions.get("boundscheck") != check:
                called.targetoptions["boundscheck"] = check
                if called.overloads:
                    called.recompile()


def plain(function: Any, known: dict[Any, Any] | None = None) -> Any:
    """The function as plain Python, with all that it calls of others: for its better errors."""
    python, known = getattr(function, "py_func", function), {} if known is None else known
    called = _called(python)
    if python in known or not called:
        return known.get(python, python)
    names = dict(python.__globals__)
    made = FunctionType(python.__code__, names, python.__name__, python.__defaults__, python.__closure__)
    made.__kwdefaults__ = python.__kwdefaults__
    known[python] = made
    for name, one in called.items():
        *modules, last = name.split(".")
        place: Any = names
        for module in modules:
            place[module] = SimpleNamespace(**vars(place[module]))
            place = vars(place[module])
        place[last] = plain(one, known)
    return made
