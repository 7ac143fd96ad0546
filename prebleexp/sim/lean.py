"""numba's compiler with less to do: its steps without those that find nothing in the package's own functions."""

from __future__ import annotations

import operator
from typing import Any

from llvmlite.binding import ffi
from numba.core import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import InlineOverloads, NativeLowering, NopythonRewrites, NopythonTypeInference
from numba.core.untyped_passes import FindLiterallyCalls, InlineClosureLikes, LiteralUnroll, WithLifting

FIND_NOTHING = (WithLifting, InlineClosureLikes, FindLiterallyCalls, LiteralUnroll, InlineOverloads, NopythonRewrites)
"""with-blocks, functions within functions, what must be known when it is compiled, and expressions of whole arrays"""


def _call_llvm_unheard() -> None:
    """numba tells of each call of LLVM to each function that waits for another to be compiled, a twentieth of the work,
    for times that nobody reads."""
    for callbacks in tuple(ffi.lib._lock._cblist):
        ffi.unregister_lock_callback(*callbacks)


_call_llvm_unheard()


class _Once(PassManager):
    """numba looks anew for what is alive after each step, which takes as long as most of the steps do. Those that need
    it look themselves."""

    _ENFORCING = False


class _Operators:
    """A typing context that remembers what operators are for these types: numba tries all that there is, each time."""

    _known: dict[Any, Any] = {}  # noqa: RUF012, of the process

    def __init__(self, context: Any) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def resolve_function_type(self, function: Any, arguments: Any, named: Any) -> Any:
        if named or not _is_operator(function) or not all(isinstance(one, _SCALARS) for one in arguments):
            return self._context.resolve_function_type(function, arguments, named)
        key = function, tuple(arguments)
        found = self._known.get(key)
        if found is None or found[0] is not function:
            found = self._known[key] = function, self._context.resolve_function_type(function, arguments, named)
        return found[1]


_SCALARS = (types.Number, types.Boolean)
_OPERATORS = {id(one) for one in (*vars(operator).values(), bool, int, float, min, max) if callable(one)}


def _is_operator(function: Any) -> bool:
    return id(function.typing_key if isinstance(function, types.Function) else function) in _OPERATORS


@register_pass(mutates_CFG=True, analysis_only=False)
class _Inference(NopythonTypeInference):
    _name = "lean_type_inference"

    def run_pass(self, state: Any) -> bool:
        context = state.typingctx
        state.typingctx = _Operators(context)
        try:
            return super().run_pass(state)
        finally:
            state.typingctx = context


class _Library(JITCodeLibrary):
    """numba optimises twice, to prune reference counts in between. Here is none."""

    def _optimize_final_module(self) -> None:
        manager, builder = self._codegen._module_pass_manager()
        manager.run(self._final_module, builder)


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):
    _name = "lean_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = _Library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return super().run_pass(state)


class Lean(CompilerBase):
    """Numba's compiler with fewer passes, for `njit(pipeline_class=Lean)`."""

    lowering: type[NativeLowering] = _Lowering

    def define_pipelines(self) -> list[PassManager]:
        made = _Once("lean")
        instead = {NativeLowering: self.lowering, NopythonTypeInference: _Inference}
        usual = DefaultPassBuilder.define_nopython_pipeline(self.state).passes
        made.passes = [(instead.get(one, one), said) for one, said in usual if one not in FIND_NOTHING]
        made.finalize()
        return [made]
