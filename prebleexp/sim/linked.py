"""Functions that compiled code alone calls become a part of whoever calls them.

numba optimises each function with all that it calls, and makes machine code of that, only to do it all again with
whoever calls it: more than a quarter of the time that compiling takes. Here they are lowered to LLVM's IR, which
whoever calls them is linked with, and is optimised there.
"""

from __future__ import annotations

from typing import Any

import numba._dynfunc
from llvmlite.binding import Linkage, parse_bitcode
from numba.core.caching import CompileResultCacheImpl
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import compile_result
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering
from numba.core.untyped_passes import InlineInlinables

from prebleexp.sim.lean import FIND_NOTHING, Lean, Part, parts_of


class _Library(JITCodeLibrary):
    """IR as it was lowered, of which no machine code is made. `parts`: all that the function calls, and then itself.
    Whoever needs several functions links each part once, and each is written to IR once."""

    parts: dict[Any, None]

    def finalize(self) -> None:
        linked = parts_of(self._linking_libraries)
        called = [one for one in linked if isinstance(one, Part)]
        self._linking_libraries = [one for one in linked if not isinstance(one, Part)]  # numba's own, a part of it
        super().finalize()
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == Linkage.external:
                function.linkage = Linkage.linkonce_odr
        own = Part(self._final_module)
        own.dynamic_globals, own._reload_init = self._dynamic_globals, self._reload_init
        self.parts = dict.fromkeys([*called, own])
        self._dynamic_globals = [name for one in self.parts for name in one.dynamic_globals]

    def _optimize_final_module(self) -> None:
        """Whoever it is linked with is optimised."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def _get_module_for_linking(self) -> Any:
        """All of it: for others than this package's functions."""
        if self._shared_module is None:
            *called, own = self.parts
            self._shared_module = own.module.clone()
            for one in reversed(called):
                self._shared_module.link_in(one.module, preserve=True)
        return self._shared_module

    def serialize_using_object_code(self) -> Any:
        return self.name, "linked", [one.written() for one in self.parts]


def _entry(library: _Library, function: Any, environment: Any) -> Any:
    """What numba knows a compiled function by; nobody may call it."""
    name = function.qualname.split(".")[-1]
    return numba._dynfunc.make_function(function.lookup_module(), name, "", 0, environment, (library,))


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):
    _name = "linked_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = library = _Library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        library._ensure_finalized()
        made = state["cr"]
        entry = _entry(library, made.fndesc, made.env)
        state.targetctx.insert_user_function(entry, made.fndesc, [library])
        state["cr"] = made._replace(cfunc=entry)
        return True


class Linked(Lean):
    """A compiler that links what is compiled: `njit(pipeline_class=Linked)`. LLVM alone puts one into another."""

    lowering = _Lowering
    left_out = (*FIND_NOTHING, InlineInlinables)


_READ: dict[bytes, Part] = {}
"""what was read from disk: several have the same parts"""


def _read(kept: tuple[bytes, tuple[Any, ...]]) -> Part:
    bitcode, _ = kept
    if bitcode not in _READ:
        _READ[bitcode] = Part(parse_bitcode(bitcode), kept)
    return _READ[bitcode]


class KeptIR(CompileResultCacheImpl):
    """How a compiled function is kept on disk."""

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        (name, _, parts), function, environment, signature, objectmode, lifted, typed, reload_init, others = payload
        for reload in reload_init:
            reload()
        library = _Library(target_context.codegen(), name)
        library.parts = dict.fromkeys(map(_read, parts))
        library._finalized = True
        return compile_result(
            target_context=target_context,
            typing_context=target_context.typing_context,
            library=library,
            environment=environment,
            entry_point=_entry(library, function, environment),
            fndesc=function,
            type_annotation=typed,
            signature=signature,
            objectmode=objectmode,
            lifted=lifted,
            reload_init=reload_init,
            referenced_envs=others,
        )
