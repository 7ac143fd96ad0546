"""Machine code of the package's functions, loaded without numba: what numba made of a plug's functions is kept together
in one file, for the next process.

A file is for these functions, as their sources are, for these arguments, on such a processor. It holds object code,
which LLVM loads, and what its functions are called there. A file that is damaged, or whose code needs what is not in
this process, is not used. There is none where a function is not the package's, or where objects are not in ELF.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
import tempfile
import threading
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from prebleexp import machine_code, sources
from prebleexp.sim import elf
from prebleexp.sim.compiled import undisturbed

SUFFIX = ".plug"
_IN_ELF = sys.platform.startswith("linux") and sys.byteorder == "little" and sys.maxsize > 1 << 32
_LOCK = threading.RLock()
"""nothing is compiled by two threads at once"""


class Wanted(NamedTuple):
    """A function, and what it is to be compiled for."""

    function: Any
    name: str
    qualified: str | None
    """what it is called as a plug's, whose block comes first; None if it is compiled as it stands"""
    returns: Any
    arguments: tuple[Any, ...]
    """see `handle_types.type_of`"""


@functools.cache
def addresses(wanted: tuple[Wanted, ...], check: bool = True) -> tuple[int, ...]:
    """Where the machine code of these functions is. Raises numba's errors for what does not compile."""
    with _LOCK:
        place = _place(wanted) if wanted else None
        found = None if place is None else _loaded(place)
        return found if found is not None else _compiled(wanted, check, place)


def _compiled(wanted: tuple[Wanted, ...], check: bool, place: Path | None) -> tuple[int, ...]:
    from prebleexp.sim.adapters import overload_of

    with undisturbed():
        made = [overload_of(one, check) for one in wanted]
    _KEPT.append(made)
    names = [one.fndesc.llvm_func_name for one in made]
    if place is not None:
        _keep(place, names, [_object(one.library) for one in made])
    return tuple(one.library.get_pointer_to_function(name) for one, name in zip(made, names, strict=True))


def _object(library: Any) -> bytes:
    """Loaded from where numba keeps it, or just made."""
    code: bytes = library.loaded if hasattr(library, "loaded") else library._get_compiled_object()
    return code


_KEPT: list[Any] = []
"""what holds code where it is"""


# ---------------------------------------------------------------- files
def _place(wanted: tuple[Wanted, ...]) -> Path | None:
    if not _IN_ELF or not all(_is_steady(one.function) for one in wanted):
        return None
    folders = [machine_code.folder_of(one.function.__code__.co_filename) for one in wanted]
    said = [
        (folder.name, _place_of(one.function), one.name, one.qualified, one.returns, one.arguments)
        for folder, one in zip(folders, wanted, strict=True)
    ]
    name = hashlib.sha256(repr((_machine(), said)).encode()).hexdigest()[:24]
    return folders[0] / f"{wanted[0].name}.{name}{SUFFIX}"


def _is_steady(function: Any) -> bool:
    """Whether its source says all of what it does."""
    code = function.__code__
    return sources.is_own(code.co_filename) and function.__closure__ is None and "<locals>" not in code.co_qualname


def _place_of(function: Any) -> tuple[str, str, int]:
    code = function.__code__
    return Path(code.co_filename).name, code.co_qualname, code.co_firstlineno


@functools.cache
def _machine() -> tuple[Any, ...]:
    """What machine code depends on beside its source."""
    from llvmlite import binding

    settings = sorted((name, value) for name, value in os.environ.items() if name.startswith("NUMBA_"))
    return (
        sys.implementation.cache_tag,
        version("numba"),
        version("llvmlite"),
        binding.get_process_triple(),
        binding.get_host_cpu_name(),
        binding.get_host_cpu_features().flatten(),
        [one for one in settings if one[0] != "NUMBA_CACHE_DIR"],
    )


def _keep(place: Path, names: list[str], objects: list[bytes]) -> None:
    """Atomically; a full disk is no reason to fail."""
    outside = sorted(elf.outside(objects))
    code = b"".join(objects)
    about = {"names": names, "sizes": [len(one) for one in objects], "outside": outside}
    about["sha256"] = hashlib.sha256(code).hexdigest()
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as file:
            file.write(json.dumps(about).encode() + b"\n" + code)
        Path(file.name).replace(place)


def _loaded(place: Path) -> tuple[int, ...] | None:
    try:
        head, _, code = place.read_bytes().partition(b"\n")
    except OSError:
        return None
    try:
        about = json.loads(head)
        names, sizes, outside, sha256 = (about[name] for name in ("names", "sizes", "outside", "sha256"))
    except (ValueError, KeyError, TypeError):
        return None
    from llvmlite import binding

    if hashlib.sha256(code).hexdigest() != sha256 or not all(map(binding.address_of_symbol, outside)):
        return None
    engine, first = _engine(), 0
    for size in sizes:
        engine.add_object_file(binding.ObjectFileRef.from_data(code[first : first + size]))
        first += size
    engine.finalize_object()
    _KEPT.append(engine)
    return tuple(engine.get_function_address(name) for name in names)


def _engine() -> Any:
    """One for each file: what is called alike in two of them may differ."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(jit=True)
    return binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
