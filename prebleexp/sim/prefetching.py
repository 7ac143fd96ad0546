"""Asking for records before they are read.

Those of millions of requests are not in a processor's cache, and who is next is known where lists are walked along: so
memory fetches that while the one before is looked at. Nothing that is computed depends on it.
"""

from __future__ import annotations

from typing import Any

from prebleexp.sim.later import INTERPRETED, Later

LINE = 64
"""bytes of a cache line"""


def _made() -> Any:
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.core.registry import cpu_target
    from numba.extending import intrinsic
    from numba.np.arrayobj import make_array

    def _prefetched(typing: Any, arrays: Any, row: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            address, word = ir.IntType(8).as_pointer(), ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [address, word, word, word])
            function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
            for array, value in zip(arrays, cgutils.unpack_tuple(builder, values[0]), strict=True):
                whole = make_array(array)(context, builder, value)
                at = [values[1], *(values[1].type(0) for _ in range(array.ndim - 1))]
                first = builder.bitcast(cgutils.get_item_pointer(context, builder, array, whole, at), address)
                size = context.get_abi_sizeof(context.get_data_type(array.dtype))
                for offset in range(0, size, LINE):
                    what = [builder.gep(first, [word(offset)]), word(0), word(3), word(1)]
                    builder.call(function, what)  # data, to be read more than once
            return values[1]

        return types.int64(arrays, types.int64), generate

    made = intrinsic(_prefetched)
    cpu_target.target_context.refresh()
    return made


prefetched: Any = (lambda arrays, row: row) if INTERPRETED else Later(_made)
"""`prefetched(arrays, row)`: the row, which each of a tuple of arrays was asked for; it need not be there"""
