"""What was simulated, in a line under a page's title: the model, the GPUs, the engine and the workload."""

from __future__ import annotations

from collections.abc import Sequence

from prebleexp.experiment import counting
from prebleexp.experiment.cell import Cell


def of(cells: Sequence[Cell]) -> str:
    """ "llama-3.1-8b in bf16 on 4 H100, vllm, chats": what is the same in all cells."""
    columns = zip(*map(_parts, dict.fromkeys(cells)), strict=True)
    model, gpus, kinds, engine, workload = ("" if len(set(values)) > 1 else values[0] for values in columns)
    served = " on ".join(filter(None, (model, gpus or kinds)))
    return ", ".join(filter(None, (served, engine, workload)))


def _parts(cell: Cell) -> tuple[str, ...]:
    own = "hardware" in cell.engine.brings
    named = "" if own else cell.hardware.title.partition(" on ")[0] or cell.called("hardware")
    kinds = " + ".join(dict.fromkeys(name.upper() for _, name, _ in counting.kinds(cell) if name))
    workload = "" if "workload" in cell.engine.brings else cell.called("workload")
    return named, counting.named(cell), kinds, cell.called("engine"), workload
