"""The processor's clock, for measuring what is called within a run. No run is given it."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


def _ticks(typing: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(64), [])
        return builder.call(builder.module.declare_intrinsic("llvm.readcyclecounter", fnty=kind), [])

    return types.int64(), generate


ticks: Any = intrinsic(_ticks)
"""how often it has ticked, which it does evenly; compiled code alone can ask"""
