"""Plugs: whatever decides in a run (a router, an engine, a cost model) as functions of the loop.

A plug is a frozen dataclass whose fields are its YAML, what its `start` makes to remember, and some functions. Compiled
code gets them as one record: the address of its own block (`Own`), and the addresses of its functions, 0 where it gives
none: such a function does nothing, and answers 0. So nobody asks whether there is a gateway, or what an engine can do.
The loop is compiled once for all plugs, and a plug once for all loops. The same source runs as plain Python.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from prebleexp.sim import objects
from prebleexp.sim.handles import Block
from prebleexp.sim.later import INTERPRETED, Later
from prebleexp.sim.objects import Wanted

INT, FLOAT, NOTHING = "int64", "float64", "none"
"""types in signatures, by numba's names; others are layouts"""


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
def _caller(restype: str) -> Any:
    """`call(address, *arguments)`: what the function at that address returns, 0 if there is none; an error in it is the
    caller's."""
    if INTERPRETED:  # an int64 all the same, also if the function read a narrower one in a record
        plain_type: Any = {INT: int, FLOAT: float}.get(restype, lambda nothing: nothing)
        return lambda function, *arguments: plain_type(function(*arguments) if function else 0)

    def made() -> Any:
        from numba.core.registry import cpu_target

        from prebleexp.sim.adapters import caller
        from prebleexp.sim.handle_types import type_of

        call = caller(type_of(restype))
        cpu_target.target_context.refresh()  # numba is perhaps in the middle of compiling, and is to know of it
        return call

    return Later(made)


call_int, call_float, call_none = _caller(INT), _caller(FLOAT), _caller(NOTHING)


# ---------------------------------------------------------------- the functions of a plug
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
        self.made = self._make([name for name in functions if hasattr(source, name) or name not in optional])
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
        self._place(self.made)
        self.record.own = self.block.value if INTERPRETED else self.block.address

    def _place(self, made: Mapping[str, Any]) -> None:
        for name, one in made.items():
            setattr(self.record, name, one)

    def _make(self, names: Sequence[str]) -> dict[str, Any]:
        """By name: the function itself, or where its machine code is."""
        functions = {name: getattr(self._source, name) for name in names}
        if INTERPRETED:
            return {name: _with_own(function) for name, function in functions.items()}
        wanted = []
        for name, function in functions.items():
            returns, arguments = self._functions[name]
            python = getattr(function, "py_func", function)
            qualified = _qualified(self.plug, python, name)
            wanted.append(Wanted(python, name, qualified, returns, (self.block.layout, *arguments)))
        return dict(zip(names, objects.addresses(tuple(wanted), self._check), strict=True))


def _with_own(function: Any) -> Any:
    return lambda own, *rest: function(own.self, own.mine, *rest)


def joined(parts: Sequence[Any]) -> Any:
    """Repeated records of several plugs, one after the other."""
    return [one for part in parts for one in part] if INTERPRETED else np.concatenate(parts).view(np.recarray)


def _one(record: np.dtype[Any]) -> Any:
    return np.zeros(1, record).view(np.recarray)[0]


def _qualified(plug: Any, function: Any, name: str) -> str:
    """By its own module: a plug has its functions from one of several, of which two may have one of a name."""
    return f"{function.__module__}.{type(plug).__qualname__}.{name}"


def plain(function: Any, known: dict[Any, Any] | None = None) -> Any:
    """The function as plain Python, with all that it calls of others: for its better errors."""
    from prebleexp.sim.adapters import called_of

    python, known = getattr(function, "py_func", function), {} if known is None else known
    called = called_of(python)
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
