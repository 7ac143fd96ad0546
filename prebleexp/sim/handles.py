"""Handles: the address of a block of memory that holds a NamedTuple's values, as compiled code is given it.

A function that is handed thirty arrays by value has two hundred arguments, and every caller of it too; a handle is one
integer. `handle.field` loads that field alone. What a block points at must outlive every run that uses it: whoever
makes a `Block` keeps it, and it keeps the arrays.

In plain Python (NUMBA_DISABLE_JIT) a handle is the NamedTuple itself.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from prebleexp.sim.later import INTERPRETED

WORD = 8


class Layout:
    """How values of these names and kinds lie behind an address, each so many words from it. There is one for all that
    lie alike."""

    def __init__(self, fields: tuple[tuple[str, Any, int], ...]) -> None:
        self.fields = fields
        self._places = {name: (kind, offset) for name, kind, offset in fields}

    def field(self, name: str) -> tuple[Any, int] | None:
        """Kind of a field, and how many 8-byte words it is from the block's address; None for no field."""
        return self._places.get(name)

    @functools.cached_property
    def digest(self) -> str:
        """A hash of the layout, the same in every process, so that machine code can be kept on disk."""
        return hashlib.sha256(repr(self.fields).encode()).hexdigest()

    def __repr__(self) -> str:
        return self.digest


class Part:
    """A NamedTuple at an address: to plain Python it has the same fields, compiled functions get it as a handle."""

    def __init__(self, value: Any, layout: Layout, address: int, owner: object) -> None:
        self.value, self.layout, self.address, self._owner = value, layout, address, owner

    def __getattr__(self, name: str) -> Any:
        if name == "value":  # not there yet
            raise AttributeError(name)
        found = getattr(self.value, name)
        if not hasattr(found, "_fields"):
            return found
        layout, offset = self.layout.field(name)  # type: ignore[misc]
        return Part(found, layout, self.address + WORD * offset, self)

    @property
    def handle(self) -> Any:
        """What to hand to a function of this package, compiled or not."""
        return self.value if INTERPRETED else self

    @property
    def _numba_type_(self) -> Any:
        from prebleexp.sim.handle_types import type_of

        return type_of(self.layout)


class Block(Part):
    """A NamedTuple, and its values in memory as compiled code reads them. `layout`: its own, if that is known.

    Raises TypeError, naming the field, for what no compiled code can read. `replace` keeps the address.
    """

    def __init__(self, value: Any, layout: Layout | None = None) -> None:
        layout = layout or _kind(_shape(value))
        self.words = np.array(_words_of(value), np.int64)
        super().__init__(value, layout, int(self.words.ctypes.data), None)

    def replace(self, value: Any) -> None:
        """Put other values of the same types in their place."""
        if _shape(value) != _shape(self.value):
            raise TypeError("a block's values may change, their types may not")
        self.value, self.words[:] = value, _words_of(value)

    def put(self, names: tuple[str, ...], value: Any) -> None:
        """Put another value of the same type in the place of one within, as `replace` does with all of them."""
        if _shape(value) != _shape(functools.reduce(getattr, names, self.value)):
            raise TypeError("a block's values may change, their types may not")
        self.value = _with(self.value, names, value)
        if not INTERPRETED:
            first, words = _position(self.layout, names), _words_of(value)
            self.words[first : first + len(words)] = words


@functools.cache
def _position(layout: Any, names: tuple[str, ...]) -> int:
    """Words from the beginning of values to one within."""
    first = 0
    for name in names:
        layout, offset = layout.field(name)
        first += offset
    return first


def _with(values: Any, names: Sequence[str], value: Any) -> Any:
    """A NamedTuple with another value within."""
    name, *rest = names
    return values._replace(**{name: _with(getattr(values, name), rest, value) if rest else value})


# ---------------------------------------------------------------- words, in numba's order
def _words_of(value: Any) -> list[int]:
    """What stands in memory; nothing does where handles are the values themselves."""
    words: list[int] = []
    if not INTERPRETED:
        _write(value, words)
    return words or [0]


def _write(value: Any, words: list[int]) -> None:
    """Append the words of `value`."""
    if hasattr(value, "_fields"):
        for one in value:
            _write(one, words)
    elif isinstance(value, np.ndarray):
        words += [0, 0, value.size, value.itemsize, value.ctypes.data, *value.shape, *value.strides]
    elif isinstance(value, np.void):
        words.append(np.frombuffer(value, np.uint8).ctypes.data)
    elif isinstance(value, float):
        words.append(int(np.array(value).view(np.int64)))
    elif value is not None:
        words.append(int(value))


class Unreadable(TypeError):
    """What no compiled code can read; its text names the type, and the fields that lead to it."""


def _shape(value: Any) -> Any:
    """What of a value determines its type."""
    if INTERPRETED:
        return ()
    if hasattr(value, "_fields"):
        return tuple((name, _named(name, one)) for name, one in zip(value._fields, value, strict=True))
    if isinstance(value, np.ndarray):
        return value.dtype, value.ndim, value.flags.c_contiguous, isinstance(value, np.recarray)
    if isinstance(value, np.void):
        return value.dtype
    if value is None or isinstance(value, bool | int | float | np.integer):
        return type(value)
    raise Unreadable(f"{type(value).__name__} is no number, array, record or NamedTuple of them")


def _named(name: str, value: Any) -> Any:
    try:
        return _shape(value)
    except Unreadable as error:
        raise Unreadable(f"{name} cannot be read by compiled code: {error}") from None


@functools.cache
def _kind(shape: Any) -> Any:
    """What values of this shape are known by: those with names by their layout."""
    if isinstance(shape, type) and issubclass(shape, int | np.integer) and shape is not bool:
        return int
    if shape != () and not (isinstance(shape, tuple) and isinstance(shape[0], tuple)):
        return shape
    fields, offset = [], 0
    for name, one in shape:
        fields.append((name, _kind(one), offset))
        offset += _words(one)
    return _layout(tuple(fields))


_layout = functools.cache(Layout)


def _words(shape: Any) -> int:
    if isinstance(shape, tuple) and (shape == () or isinstance(shape[0], tuple)):
        return sum(_words(one) for _, one in shape)
    if isinstance(shape, tuple):
        return 5 + 2 * int(shape[1])
    return 0 if shape is type(None) else 1
