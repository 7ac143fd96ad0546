"""Handles, as numba knows them (see `prebleexp.sim.handles`)."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from llvmlite import ir
from numba import from_dtype, typeof, types
from numba.core.datamodel.models import PrimitiveModel
from numba.core.errors import TypingError
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import NativeValue, register_model, unbox

from prebleexp.errors import unknown
from prebleexp.sim.handles import WORD, Layout

_INT = ir.IntType(64)


class Handle(types.Type):
    """The address of values that lie so."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        super().__init__(f"Handle({layout.digest[:16]})")

    def field(self, name: str) -> tuple[Any, int] | None:
        """Numba's type of a field, and how many 8-byte words it is from the block's address; None for no field."""
        found = self._layout.field(name)
        return found and (type_of(found[0]), found[1])

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self._layout.fields]


@functools.cache
def type_of(kind: Any) -> Any:
    """numba's type of a value of this kind: a layout, what `handles` knows other values by, or the name of a type."""
    if isinstance(kind, Layout):
        return Handle(kind)
    if isinstance(kind, str):
        return getattr(types, kind)
    if isinstance(kind, tuple):
        dtype, dimensions, contiguous, is_records = kind
        example = np.zeros((1,) * dimensions, dtype)
        array = typeof(example.view(np.recarray) if is_records else example)
        return array if contiguous else array.copy(layout="A")
    return from_dtype(kind) if isinstance(kind, np.dtype) else _SCALARS.get(kind, types.int64)


_SCALARS = {type(None): types.none, bool: types.boolean, float: types.float64}


@register_model(Handle)
class _HandleModel(PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _INT)


@infer_getattr
class _HandleFields(AttributeTemplate):
    key = Handle

    def generic_resolve(self, handle: Handle, name: str) -> Any:  # type: ignore[override]
        found = handle.field(name)
        if found is None and handle.names:
            raise TypingError(str(unknown("field", name, handle.names)))
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


@unbox(Handle)  # type: ignore[untyped-decorator]
def _address_of_block(kind: Handle, value: Any, context: Any) -> Any:
    address = context.pyapi.object_getattr_string(value, "address")
    native = context.pyapi.long_as_longlong(address)
    context.pyapi.decref(address)
    return NativeValue(native)
