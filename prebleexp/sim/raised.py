"""Errors in compiled code that Python called by its address: what numba's own wrapper would raise."""

from __future__ import annotations

import ctypes
from typing import Any

from numba.core import serialize
from numba.core.callconv import FIRST_USEREXC


class _Info(ctypes.Structure):
    """numba's `excinfo_t`."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("size", ctypes.c_int32),
        ("given", ctypes.c_void_p),
        ("unwrap", ctypes.c_void_p),
        ("allocated", ctypes.c_int32),
    )


def raised(status: int, address: int | None) -> BaseException:
    """The error that a status stands for, with what the code left of it at an address."""
    if status < FIRST_USEREXC or not address:
        return SystemError("unknown error when calling native function")
    info: Any = _Info.from_address(address)
    said = ctypes.string_at(info.data, info.size)
    if info.unwrap:  # some of its arguments are of the run
        values = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p)(info.unwrap)(info.given)
        kind, arguments, _ = serialize.runtime_build_excinfo_struct(said, values)
    else:
        kind, arguments, _ = serialize.loads(said)
    error: BaseException = kind(*(arguments or ()))
    return error
