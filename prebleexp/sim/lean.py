"""numba's compiler with less to do: its steps without those that find nothing in the package's own functions."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from llvmlite.binding import ffi
from numba.core import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.environment import lookup_environment
from numba.core.ir_utils import build_definitions
from numba.core.typed_passes import (
    InlineOverloads,
    IRLegalization,
    NativeLowering,
    NopythonRewrites,
    NopythonTypeInference,
    PreLowerStripPhis,
)
from numba.core.untyped_passes import FindLiterallyCalls, InlineClosureLikes, LiteralUnroll, WithLifting

FIND_NOTHING = (
    *(WithLifting, InlineClosureLikes, FindLiterallyCalls, LiteralUnroll, InlineOverloads, NopythonRewrites),
    IRLegalization,
)
"""with-blocks, functions within functions, what must be known when it is compiled, expressions of whole arrays, and
where variables end, whose references nobody counts"""


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
class _StripPhis(PreLowerStripPhis):
    """Without a look at what is alive, which only generators need afterwards."""

    _name = "lean_strip_phis"

    def run_pass(self, state: Any) -> bool:
        state.func_ir = self._strip_phi_nodes(state.func_ir)
        state.func_ir._definitions = build_definitions(state.func_ir.blocks)
        return True


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


class Part:
    """One function as it was lowered, to be linked with whoever calls it. `kept`: what is written of it, if it was."""

    def __init__(self, module: Any, kept: tuple[bytes, tuple[Any, ...]] | None = None) -> None:
        self.module, self._kept = module, kept
        self.dynamic_globals: list[str] = []
        self._reload_init = set[Any]()

    def _get_module_for_linking(self) -> Any:
        return self.module

    def written(self) -> tuple[bytes, tuple[Any, ...]]:
        """Its IR, and what its errors are made of, which numba finds by name."""
        if self._kept is None:
            named = (one.name for one in self.module.global_variables if one.name.startswith("_ZN08NumbaEnv"))
            found = (lookup_environment(name) for name in named)
            environments = tuple(one for one in found if one is not None and one.can_cache())
            self._kept = self.module.as_bitcode(), environments
        return self._kept


def parts_of(libraries: Sequence[Any]) -> dict[Any, None]:
    """What they are made of, each once, behind all that it calls."""
    found = dict[Any, None]()
    for library in libraries:
        found |= getattr(library, "parts", {library: None})
    return found


class _Library(JITCodeLibrary):
    """numba optimises twice, to prune reference counts in between. Here is none."""

    def finalize(self) -> None:
        """Callers come first: LLVM links what is asked for by then."""
        self._linking_libraries = [*reversed(parts_of(self._linking_libraries))]
        super().finalize()

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
    left_out: tuple[Any, ...] = FIND_NOTHING

    def define_pipelines(self) -> list[PassManager]:
        made = _Once("lean")
        instead = {
            NativeLowering: self.lowering,
            NopythonTypeInference: _Inference,
            PreLowerStripPhis: _StripPhis,
        }
        usual = DefaultPassBuilder.define_nopython_pipeline(self.state).passes
        made.passes = [(instead.get(one, one), said) for one, said in usual if one not in self.left_out]
        made.finalize()
        return [made]
