"""Compiling takes little work, which is counted: the same on every machine."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from numba.core import event, types

from prebleexp.sim.compiled import kept


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
