"""A run as a benchmark's client saw it, and what is to be known of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from prebleexp import losses
from prebleexp.errors import InvalidInput
from prebleexp.experiment import counting, durable, load, runs
from prebleexp.experiment.cell import Cell
from prebleexp.launch import configure, overrides
from prebleexp.launch.loads import files_of
from prebleexp.sim.steps import Steps
from prebleexp.vllm_bench.served import Served, served


class Benchmarked(NamedTuple):
    cell: Cell
    seen: Served
    says: tuple[str, ...]
    """what is to be known of it, in sentences"""
    others: tuple[Served, ...] = ()
    """of further seeds, where these were asked for"""

    @property
    def model(self) -> str:
        """Name of the model that is served, as in conf/hardware/model; that of the hardware where it has no model."""
        return str(self.cell.columns().get("hardware.model") or self.cell.called("hardware"))


def of_settings(serves: Sequence[str], workload: str, load: Mapping[str, Any], seeds: int = 1) -> Benchmarked:
    """A benchmark of what `serves`; of so many `seeds` where it draws anything, unless the user said of which. Raises
    InvalidInput for what is not valid."""
    for one in serves:
        if one.lstrip("+~").startswith("workload"):
            raise InvalidInput(f"{one} is not valid here; the benchmark is the load")
    asked = {"workload": workload} | dict(load)
    if any(one.startswith("seed=") for one in serves):
        asked.pop("seed", None)
    cells = configure.job_of_command([*serves, *overrides.lines(asked)]).cells
    found = of_cells(cells[:1] if seeds > 1 else cells)
    if seeds == 1 or not cells[0].draws:
        return found
    said = any(one.startswith(("seed=", "replications=")) for one in serves)
    more = cells[1:] if said else [replace(cells[0], seed=cells[0].seed + i) for i in range(1, seeds)]
    return found._replace(others=tuple(_served(one)[1] for one in more))


def of_cells(cells: Sequence[Cell]) -> Benchmarked:
    """The first of a configuration's replications."""
    cell = cells[0]
    run, seen = _served(cell)
    says = [f"simulated: {served_by(cell)}", *files_of(cell)]
    says += losses.sentences([("", [{**run.metrics, **load.asked(cell)}])])
    if len(cells) > 1:
        says.append(f"of {len(cells):,} replications it is the first")
    if seen.spread:
        says.append(
            f"of {seen.spread:,} of {len(seen.ok):,} requests it is not known in which steps their tokens came, as of "
            "those that left the batch for a while: their gaps are taken to be even, so that the longest are longer "
            "than ITL says"
        )
    return Benchmarked(cell, seen, tuple(says))


def _served(cell: Cell) -> tuple[runs.Run, Served]:
    steps = Steps()
    run = runs.run(cell, on_event=steps)
    steps.since(run.outcome.begun.at_s if run.outcome.begun else 0.0)
    return run, served(run, steps)


def served_by(cell: Cell) -> str:
    """What a run simulates, and how well it is known."""
    seed = f", seed {cell.seed}" if cell.draws else ""
    called = f"{counting.words(cell)}, policy={cell.called('policy')}, engine={cell.called('engine')}{seed}"
    return f"{called}; {_hardware(cell)}: {cell.hardware.support}" if cell.hardware.support else called


def _hardware(cell: Cell) -> str:
    columns = cell.columns()
    parts = (columns.get(f"hardware.{name}") for name in ("model", "gpu"))
    return " on ".join(str(one) for one in parts if one) or cell.called("hardware")


def write(path: Path, text: str, append: bool) -> None:
    """Raises InvalidInput if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if append and path.exists() and path.stat().st_size:
            text = f"{path.read_text(encoding='utf-8').rstrip()}\n{text}"
        durable.write(path, text.encode())
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} cannot be written: {error}") from None
