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
from llvmlite import ir
from numba import from_dtype, typeof, types
from numba.core.datamodel.models import PrimitiveModel
from numba.core.errors import TypingError
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import NativeValue, register_model, typeof_impl, unbox

from prebleexp.errors import unknown
from prebleexp.sim.compiled import INTERPRETED

WORD = 8
_INT = ir.IntType(64)


class Handle(types.Type):
    """The address of values of these names and types, each so many words from it."""

    def __init__(self, fields: tuple[tuple[str, Any, int], ...]) -> None:
        self.fields = fields
        super().__init__(f"Handle({hashlib.sha256(repr(fields).encode()).hexdigest()[:16]})")

    def field(self, name: str) -> tuple[Any, int] | None:
        """(type, words from the address)"""
        return next(((kind, offset) for field, kind, offset in self.fields if field == name), None)


@register_model(Handle)
class _HandleModel(PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _INT)


@infer_getattr
class _HandleFields(AttributeTemplate):
    key = Handle

    def generic_resolve(self, handle: Handle, name: str) -> Any:  # type: ignore[override]
        found = handle.field(name)
        if found is None and handle.fields:
            raise TypingError(str(unknown("field", name, [field for field, _, _ in handle.fields])))
        return found and found[0]


@lower_getattr_generic(Handle)  # type: ignore[untyped-decorator]
def _load(context: Any, builder: Any, handle: Handle, value: Any, name: str) -> Any:
    kind, offset = handle.field(name)  # type: ignore[misc]
    address = builder.add(value, ir.Constant(_INT, WORD * offset))
    if isinstance(kind, Handle):
        return address
    if kind is types.none:
        return context.get_dummy_value()
    stored = _INT if kind is types.boolean else context.get_value_type(kind)
    loaded = builder.load(builder.inttoptr(address, stored.as_pointer()))
    # Blocks change between calls from Python only, so that a field need not be loaded again after every store.
    loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
    return builder.trunc(loaded, ir.IntType(1)) if kind is types.boolean else loaded


class Part:
    """A NamedTuple at an address: to plain Python it has the same fields, compiled functions get it as a handle."""

    def __init__(self, value: Any, kind: Handle, address: int, owner: object) -> None:
        self.value, self.type, self.address, self._owner = value, kind, address, owner

    def __getattr__(self, name: str) -> Any:
        if name == "value":  # not there yet
            raise AttributeError(name)
        found = getattr(self.value, name)
        if not hasattr(found, "_fields"):
            return found
        kind, offset = self.type.field(name)  # type: ignore[misc]
        return Part(found, kind, self.address + WORD * offset, self)

    @property
    def handle(self) -> Any:
        """What to hand to a function of this package, compiled or not."""
        return self.value if INTERPRETED else self


class Block(Part):
    """A NamedTuple, and its values in memory as compiled code reads them. `kind`: its type, if that is known.

    Raises TypeError, naming the field, for what no compiled code can read. `replace` keeps the address.
    """

    def __init__(self, value: Any, kind: Handle | None = None) -> None:
        kind = kind or _kind(_shape(value))
        self.words = np.array(_words_of(value), np.int64)
        super().__init__(value, kind, int(self.words.ctypes.data), None)

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
            first, words = _position(self.type, names), _words_of(value)
            self.words[first : first + len(words)] = words


@functools.cache
def _position(kind: Any, names: tuple[str, ...]) -> int:
    """Words from the beginning of values to one within."""
    first = 0
    for name in names:
        kind, offset = kind.field(name)
        first += offset
    return first


def _with(values: Any, names: Sequence[str], value: Any) -> Any:
    """A NamedTuple with another value within."""
    name, *rest = names
    return values._replace(**{name: _with(getattr(values, name), rest, value) if rest else value})


@typeof_impl.register(Part)
def _type_of_block(block: Part, context: Any) -> Handle:
    return block.type


@unbox(Handle)  # type: ignore[untyped-decorator]
def _address_of_block(kind: Handle, value: Any, context: Any) -> Any:
    address = context.pyapi.object_getattr_string(value, "address")
    native = context.pyapi.long_as_longlong(address)
    context.pyapi.decref(address)
    return NativeValue(native)


# ---------------------------------------------------------------- layout, which is numba's
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
    raise TypeError(f"{type(value).__name__} is no number, array, record or NamedTuple of them")


def _named(name: str, value: Any) -> Any:
    try:
        return _shape(value)
    except TypeError as error:
        raise TypeError(f"{name} cannot be read by compiled code: {error}") from None


@functools.cache
def _kind(shape: Any) -> Any:
    """The type of values of this shape."""
    if shape == () or (isinstance(shape, tuple) and isinstance(shape[0], tuple)):
        fields, offset = [], 0
        for name, one in shape:
            fields.append((name, _kind(one), offset))
            offset += _words(one)
        return Handle(tuple(fields))
    if isinstance(shape, tuple):
        dtype, dimensions, contiguous, is_records = shape
        example = np.zeros((1,) * dimensions, dtype)
        array = typeof(example.view(np.recarray) if is_records else example)
        return array if contiguous else array.copy(layout="A")
    return from_dtype(shape) if isinstance(shape, np.dtype) else _SCALARS.get(shape, types.int64)


_SCALARS = {type(None): types.none, bool: types.boolean, float: types.float64}


def _words(shape: Any) -> int:
    if isinstance(shape, tuple) and (shape == () or isinstance(shape[0], tuple)):
        return sum(_words(one) for _, one in shape)
    if isinstance(shape, tuple):
        return 5 + 2 * int(shape[1])
    return 0 if shape is type(None) else 1
