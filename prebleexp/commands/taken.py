"""What nobody said of servers that were measured, and what is taken for it: all of it matters to step times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prebleexp.experiment.cell import Cell
from prebleexp.hardware import parameters
from prebleexp.hardware.composed import Composed
from prebleexp.launch.parts import key_of
from prebleexp.report.stored import in_fp8

FIELDS = ("precision", "kv_precision", "tensor_parallel")
"""of composed hardware, without which no step's time is right; an option of hardware= other than composed says them"""


def by_default(cell: Cell, lines: Sequence[str]) -> list[str]:
    """Sentences, from the settings that were given; none where these say it all."""
    given, hardware = {key_of(line) for line in lines}, cell.hardware
    taken: dict[str, Any] = {}
    if not given & {"gpus", "replicas"} and not any(one.startswith("cluster") for one in given):
        taken["gpus"] = cell.gpus
    taken |= {one: cell.called(one) for one in ("policy", "engine") if one not in given}
    fields: dict[str, Any] = {}
    if isinstance(hardware, Composed) and cell.names["hardware"] == "composed":
        if given & {"hardware", "hardware/gpu", "hardware/model"}:
            own = {"hardware/gpu": hardware.gpu.name, "hardware/model": hardware.model.name}
            taken |= {key: name for key, name in own.items() if key not in given}
        else:
            taken["hardware"] = hardware.title
        fields = {f"hardware.{one}": getattr(hardware, one) for one in FIELDS if f"hardware.{one}" not in given}
        taken |= fields
    elif not any(one.startswith("hardware") for one in given):
        taken["hardware"] = hardware.title or cell.called("hardware")
    if not taken:
        return []
    said = [f"not said, and taken by default: {', '.join(f'{key}={value}' for key, value in taken.items())}"]
    if isinstance(hardware, Composed) and {"hardware.precision", "hardware.kv_precision"} & fields.keys():
        said += [_formats(hardware), *([in_fp8(hardware)] if "hardware.kv_precision" in fields else [])]
    return [one for one in said if one]


def _formats(hardware: Composed) -> str:
    """In which formats the model was measured on this GPU, and in which else it can be simulated."""
    measured = [
        precision
        for gpu, engine, model, precision in parameters.measured()
        if (gpu, engine, model) == (hardware.gpu_name, hardware.engine, hardware.model.name)
    ]
    name, gpu = hardware.model.name, hardware.gpu_name
    known = f"; {name} was measured on {gpu} in {' and '.join(measured)}" if measured else ""
    return f"weights can be in {', '.join(hardware.gpu.precisions)} on {gpu}{known}: say what your servers have"
