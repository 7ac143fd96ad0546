"""Machine code that is loaded without numba: from a file for a plug's functions, which is used only if it is whole."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

from prebleexp.hardware.preble import PrebleFit
from prebleexp.sim import addresses, elf, handoff, objects, reserving
from prebleexp.sim.entry import compiled_for
from prebleexp.sim.handles import Block
from prebleexp.sim.later import INTERPRETED
from prebleexp.sim.objects import Wanted
from prebleexp.sim.plug import FLOAT, INT, Plug
from prebleexp.sim.pools import RESERVE_FIRST
from prebleexp.sim.signatures import COST, HANDOFF
from prebleexp.sim.world import EXAMPLE
from tests.support.routers import cost_of_a_token

pytestmark = pytest.mark.skipif(INTERPRETED, reason="nothing is compiled")


def wanted(fit: PrebleFit) -> tuple[Wanted, ...]:
    block = Plug(fit, fit.kernels(), fit.start(), addresses.COST, COST).block
    function: Any = fit.kernels().decode_s
    return (Wanted(function.py_func, "decode_s", "a.decode_s", FLOAT, (block.layout, *[INT] * 4)),)


def called(fit: PrebleFit, address: int, *arguments: int) -> float:
    """What a function of the plug's block answers."""
    kind = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 5)
    block = Plug(fit, fit.kernels(), fit.start(), addresses.COST, COST).block
    result, trouble = ctypes.c_double(), ctypes.c_void_p()
    assert kind(address)(ctypes.addressof(result), ctypes.addressof(trouble), block.address, *arguments) == 0
    return result.value


def test_what_is_loaded_answers_what_was_compiled(tmp_path: Path) -> None:
    fit = cost_of_a_token()
    ours, place = wanted(fit), tmp_path / "some.plug"
    assert objects._place(ours) is not None
    assert objects._loaded(place) is None
    (made,) = objects._compiled(ours, True, place)
    (loaded,) = objects._loaded(place) or (0,)
    assert loaded not in (0, made)
    assert called(fit, made, 3, 1, 1, 1) == called(fit, loaded, 3, 1, 1, 1) == 0.003


@pytest.mark.parametrize("damage", ["cut", "changed", "no header", "needs what is not there"])
def test_a_file_that_is_not_whole_is_not_used(damage: str, tmp_path: Path) -> None:
    ours = wanted(cost_of_a_token())
    place = tmp_path / "some.plug"
    objects._compiled(ours, True, None)
    objects._keep(place, ["one"], [b"\x7fELF" + bytes(60)])
    whole = place.read_bytes()
    head, _, code = whole.partition(b"\n")
    damaged = {
        "cut": whole[:-1],
        "changed": whole[:-1] + b"\1",
        "no header": code,
        "needs what is not there": head.replace(b'"outside": []', b'"outside": ["of_nobody"]') + b"\n" + code,
    }
    place.write_bytes(damaged[damage])
    assert damaged[damage] != whole
    assert objects._loaded(place) is None


def test_a_file_is_for_its_kinds_its_source_and_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = wanted(cost_of_a_token())
    place = objects._place((one,))
    others = [one._replace(arguments=one.arguments[:-1]), one._replace(returns=INT), one._replace(qualified="b")]
    assert place == objects._place((one,)) not in [objects._place((other,)) for other in others]
    monkeypatch.setattr(objects, "_machine", lambda: ("another",))
    assert objects._place((one,)) != place
    assert objects._place((one._replace(function=lambda: None),)) is None  # its source does not say all that it does


def test_functions_of_one_name_are_kept_apart_where_a_plug_has_its_own_from_one_of_two_modules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Wanted] = []
    monkeypatch.setattr(objects, "addresses", lambda wanted, check: asked.extend(wanted) or [0] * len(wanted))
    for source in (handoff, reserving):
        Plug(None, source, None, addresses.HANDOFF, {"placed": HANDOFF[RESERVE_FIRST]["placed"]})
    assert len({one.qualified for one in asked}) == 2


def test_what_objects_need_of_others_is_read_in_them() -> None:
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine()
    texts = ["declare double @there(double)\ndeclare double @nowhere(double)\n", ""]
    texts[0] += "define double @here(double %x) {\n %a = call double @there(double %x)\n"
    texts[0] += " %b = call double @nowhere(double %a)\n ret double %b\n}\n"
    texts[1] = "define double @there(double %x) {\n ret double %x\n}\n"
    made = [machine.emit_object(binding.parse_assembly(text)) for text in texts]
    assert elf.outside(made) == {"nowhere"}
    assert elf.outside(made[:1]) == {"nowhere", "there"}


def _raises_in_a_loop(world: Any) -> int:
    if world.control.events < 0:
        raise KeyError("events")
    return 7 // int(world.control.events)


def test_an_error_in_a_loop_is_raised_as_what_it_is() -> None:
    loop = compiled_for(EXAMPLE)(_raises_in_a_loop)
    events, EXAMPLE.value.control.events = int(EXAMPLE.value.control.events), 7
    try:
        assert loop(EXAMPLE) == 1
        EXAMPLE.value.control.events = 0
        with pytest.raises(ZeroDivisionError):
            loop(EXAMPLE)
        EXAMPLE.value.control.events = -1
        with pytest.raises(KeyError, match="events"):
            loop(EXAMPLE)
    finally:
        EXAMPLE.value.control.events = events
    with pytest.raises(TypeError, match="not compiled for such a block"):
        loop(Block(EXAMPLE.value.seen))
