"""Compiling takes little work, which is counted: the same on every machine."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from llvmlite.binding import parse_bitcode
from numba import njit
from numba.core import event, types

from prebleexp.sim.compiled import LEAN, OPTIONS, kept
from prebleexp.sim.lean import Lean
from prebleexp.sim.linked import Linked


def _sums(a: int, b: int) -> int:
    return a + b + a + b + a + b if a != b and b != a else min(a, b)


def test_a_function_goes_through_few_passes_and_operators_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """numba's own pipeline has 29 passes, and asks twice for each operator, when it infers types and when it lowers."""
    asked = Counter[str]()
    usual = types.functions.BaseFunction.get_call_type

    def counted(self: Any, context: Any, arguments: Any, named: Any) -> Any:
        asked[str(self.typing_key)] += 1
        return usual(self, context, arguments, named)

    monkeypatch.setattr(types.functions.BaseFunction, "get_call_type", counted)
    with event.install_recorder("numba:run_pass") as passes, event.install_recorder("numba:llvm_lock") as told:
        kept(_sums, lean=True).compile(types.int64(types.int64, types.int64))
    names = [one.data["name"] for _, one in passes.buffer if one.is_start and "_sums" in one.data["name"]]
    print(f"{len(names)} passes; asked: {dict(asked)}")
    assert len(names) <= 23
    assert not told.buffer, "nobody is told of each call of LLVM"
    assert asked["<built-in function add>"] <= 6


@njit(**LEAN, pipeline_class=Linked)  # type: ignore[untyped-decorator]
def _divided(a: int, b: int) -> int:
    return a // b


@njit(**LEAN, pipeline_class=Linked)  # type: ignore[untyped-decorator]
def _shared(a: int, shares: int) -> int:
    return _divided(a, shares) + 1  # type: ignore[no-any-return]


@njit(**LEAN, pipeline_class=Linked)  # type: ignore[untyped-decorator]
def _mean(a: int, b: int, shares: int) -> int:
    return _divided(_shared(a, shares) + _shared(b, shares), shares)  # type: ignore[no-any-return]


@njit(**OPTIONS, pipeline_class=Lean)  # type: ignore[untyped-decorator]
def _asked(a: int, b: int, shares: int) -> int:
    return _mean(a, b, shares) + _shared(a, shares)  # type: ignore[no-any-return]


def test_what_compiled_code_calls_is_lowered_once_and_written_once() -> None:
    """A function that others share is one part of each of them, and its errors are theirs."""
    assert _asked(10, 20, 2) == 14
    with pytest.raises(ZeroDivisionError):
        _asked(10, 20, 0)
    (mean,), (shared,) = (one.overloads.values() for one in (_mean, _shared))
    _, _, parts = mean.library.serialize_using_object_code()
    written = [parse_bitcode(bitcode) for bitcode, _ in parts]
    assert [sum(not one.is_declaration for one in each.functions) for each in written] == [1, 1, 1]
    assert list(shared.library.parts) == list(mean.library.parts)[:2]
